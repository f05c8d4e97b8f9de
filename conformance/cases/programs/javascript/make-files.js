{
  const fs = require("fs");
  fs.mkdirSync({{dir}}, { recursive: true });
  for (let i = 0; i < {{count}}; i++) fs.writeFileSync({{dir}} + "/f" + String(i).padStart(4, "0"), "");
}
