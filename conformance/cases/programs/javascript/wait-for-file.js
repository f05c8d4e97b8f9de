{
  const fs = require("fs");
  const cell = new Int32Array(new SharedArrayBuffer(4));
  console.log("waiting");
  for (let i = 0; i < 3000; i++) {
    let text = "";
    try {
      text = fs.readFileSync({{name}}, "utf8");
    } catch {}
    if (text) {
      console.log(text);
      break;
    }
    Atomics.wait(cell, 0, 0, 10);
  }
}
