{
  const fs = require("fs");
  const cell = new Int32Array(new SharedArrayBuffer(4));
  console.log("ready");
  for (;;) {
    fs.appendFileSync({{name}}, "x");
    Atomics.wait(cell, 0, 0, 10);
  }
}
