const path = require("path");
const fs = require("fs");
fs.writeFileSync("part.js", "exports.main = require.main === module; exports.of = require.main.filename;");
exports.part = require("./part");
if (require.main === module && !module.parent) {
  const { part } = module.exports;
  console.log(typeof exports, !part.main, part.of === __filename, path.dirname(__filename) === __dirname);
  console.log(__dirname === process.cwd(), process.argv.length, process.argv[1] === __filename);
}
