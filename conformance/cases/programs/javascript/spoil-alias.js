const fs = require("fs");
const name = {{name}}, above = {{above}}, file = {{file}};
for (const [what, spoil] of Object.entries({
  chmod: () => fs.chmodSync(above, 0o777),
  remove: () => fs.unlinkSync(name),
  rmdir: () => fs.rmdirSync(name),
  rm: () => fs.rmSync(name, { recursive: true }),
  rename: () => fs.renameSync(name, name + ".old"),
  move: () => fs.renameSync(name, "moved"),
  above: () => fs.renameSync(above, above + ".old"),
  file: () => fs.writeFileSync(name, "x"),
  over: () => fs.renameSync(file, name),
  link: () => fs.symlinkSync("/tmp", name),
  mkdir: () => fs.mkdirSync(name),
  beside: () => fs.writeFileSync(above + "/beside.txt", "x"),
  "mkdir beside": () => fs.mkdirSync(above + "/beside"),
  "link beside": () => fs.symlinkSync("/tmp", above + "/beside"),
})) {
  try {
    spoil();
  } catch {
    continue;
  }
  console.log("spoiled:", what);
}
console.log("done");
