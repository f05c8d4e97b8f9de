{
  const said = { Name: "ECMAScript", Version: "", Packages: {} };
  let node = typeof process === "object" && process.versions && process.versions.node && typeof require === "function";
  try {
    node = node && require.resolve("child_process"); // what has no processes has some of its modules only
  } catch {
    node = false;
  }
  if (node) {
    const fs = require("fs");
    said.Name = "Node.js";
    said.Version = process.versions.node;
    const list = (dir) => {
      try {
        return fs.readdirSync(dir).filter((name) => !name.startsWith("."));
      } catch {
        return [];
      }
    };
    for (const dir of require.resolve.paths("x") || []) {
      for (const name of list(dir)) {
        for (const full of name.startsWith("@") ? list(dir + "/" + name).map((below) => name + "/" + below) : [name]) {
          if (Object.keys(said.Packages).length < 500 && !(full in said.Packages) && fs.existsSync(dir + "/" + full + "/package.json")) {
            said.Packages[full] = "";
          }
        }
      }
    }
  }
  console.log(JSON.stringify(said));
}
