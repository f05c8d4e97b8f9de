const { Worker } = require("worker_threads");
const say = (what) => console.log(what);
require("fs").readFile("/dev/null", () => say("file"));
require("zlib").gzip("x", () => say("zlib"));
require("child_process").exec("sleep {{ms}}e-3", () => say("child"));
new Worker(`require("worker_threads").parentPort.postMessage("worker")`, { eval: true }).on("message", say);
process.stdin.on("data", () => {}).on("end", () => say("stdin"));
const server = require("net").createServer((socket) => socket.end("socket"));
server.listen(0, "127.0.0.1", () => require("net").connect(server.address().port, "127.0.0.1").on("data", (data) => say(String(data))));
setInterval(() => {}, 1000); // and the server, are not waited for
