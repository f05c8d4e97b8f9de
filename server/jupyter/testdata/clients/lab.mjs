// Drives kernels with JupyterLab's own client, as JupyterLab does.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { setTimeout } from "node:timers/promises";
import WebSocket from "ws";

const require = createRequire(import.meta.url);
const { KernelManager, KernelSpecManager, ServerConnection, SessionManager, ContentsManager } = require("@jupyterlab/services");

const serverSettings = ServerConnection.makeSettings({
  baseUrl: process.env.SERVER_URL, wsUrl: process.env.SERVER_URL.replace(/^http/, "ws"), token: process.env.SERVER_KEY, appendToken: true, WebSocket, fetch,
});
const kernelspecs = new KernelSpecManager({ serverSettings });
await kernelspecs.ready;
assert.equal(kernelspecs.specs.default, "python3");
assert.deepEqual(Object.keys(kernelspecs.specs.kernelspecs).sort(), ["javascript", "python3", "typescript"]);

// infoOf returns what a kernel says of itself. Jupyter Server 1.23 as a gateway loses a message that
// comes before it has begun to connect to the kernel. JupyterLab's client asks when it connects, and
// then waits for ever: its user reconnects.
async function infoOf(kernel) {
  for (let wait = 5000; process.env.GATEWAY; wait += 5000) { // longer each time: the machine may be busy
    const answered = new AbortController();
    const slow = setTimeout(wait, "slow", answered).catch(() => {});
    const first = await Promise.race([kernel.info, slow]);
    answered.abort();
    if (first !== "slow") break;
    await kernel.reconnect();
  }
  return kernel.info;
}

const kernels = new KernelManager({ serverSettings });
const sessions = new SessionManager({ kernelManager: kernels, serverSettings });
const session = await sessions.startNew({ name: "a.ipynb", path: "a.ipynb", type: "notebook", kernel: { name: "python3" } });
const kernel = session.kernel;
assert.equal((await infoOf(kernel)).language_info.name, "python");

// run runs a cell, and returns its outputs and its answer. It calls heard with the text so far.
async function run(code, input, heard = () => {}) {
  const future = kernel.requestExecute({ code, allow_stdin: input !== undefined, stop_on_error: true });
  const outputs = [];
  let text = "";
  future.onIOPub = ({ header, content }) => {
    if (header.msg_type === "stream") heard((text += content.text));
    else if (["display_data", "execute_result", "error"].includes(header.msg_type)) outputs.push({ type: header.msg_type, ...content });
  };
  future.onStdin = ({ header, content }) => {
    assert.equal(header.msg_type, "input_request");
    future.sendInputReply({ status: "ok", value: input(content) }, { ...header });
  };
  const { content } = await future.done;
  return { text, outputs, reply: content };
}

let got = await run("x = 6\nprint('é', x)\nx * 7");
assert.equal(got.text, "é 6\n");
assert.equal(got.reply.status, "ok");
assert.equal(got.reply.execution_count, 1);
assert.equal(got.outputs[0].type, "execute_result");
assert.equal(got.outputs[0].data["text/plain"], "42");

got = await run("from IPython.display import HTML\ndisplay(HTML('<b>x</b>'))\ndisplay({'image/png': b'\\x89PNG\\r\\n', 'application/json': {'a': 1}}, raw=True)");
assert.equal(got.outputs[0].data["text/html"], "<b>x</b>");
assert.equal(got.outputs[1].data["image/png"], Buffer.from("\x89PNG\r\n", "latin1").toString("base64"));
assert.deepEqual(got.outputs[1].data["application/json"], { a: 1 });

got = await run("def f():\n    raise ValueError('no')\nf()");
assert.deepEqual([got.reply.status, got.reply.ename, got.reply.evalue], ["error", "ValueError", "no"]);
assert.match(got.outputs[0].traceback.join("\n"), /<cell 3>.*line 3[^]*ValueError: no$/);

const asked = [];
got = await run("import getpass\nprint('I am ' + input('name? ') + getpass.getpass())", (q) => (asked.push([q.prompt, q.password]), "you"));
assert.equal(got.text, "I am youyou\n");
assert.deepEqual(asked, [["name? ", false], ["Password: ", true]]);
got = await run("input()");
assert.equal(got.reply.ename, "EOFError");

let looping;
await new Promise((begun) => (looping = run("print('begun', flush=True)\nwhile True: pass", undefined, begun)));
const waiting = run("print('never')");
await kernel.interrupt();
assert.equal((await looping).reply.ename, "KeyboardInterrupt");
assert.equal((await waiting).reply.status, "aborted");
assert.equal((await run("print(x)")).text, "6\n");

let names = (await kernel.requestComplete({ code: "import math\nmath.sq", cursor_pos: 19 })).content;
assert.deepEqual(names.matches, []); // math is not imported yet, and code that is typed does not run
await run("import math\nvaluable = [1]");
names = (await kernel.requestComplete({ code: "é = math.sq", cursor_pos: 11 })).content;
assert.deepEqual([names.matches, names.cursor_start, names.cursor_end], [["sqrt"], 9, 11]);
assert.deepEqual((await kernel.requestComplete({ code: "valua", cursor_pos: 5 })).content.matches, ["valuable"]);
const told = (await kernel.requestInspect({ code: "math.sqrt(4", cursor_pos: 11, detail_level: 0 })).content;
assert.equal(told.found, true);
assert.match(told.data["text/plain"], /square root/);
assert.equal((await kernel.requestInspect({ code: "nothing", cursor_pos: 3, detail_level: 0 })).content.found, false);
assert.equal((await kernel.requestIsComplete({ code: "for i in x:" })).content.status, "incomplete");
const past = (await kernel.requestHistory({ hist_access_type: "tail", n: 1, output: false, raw: true })).content.history;
assert.equal(past[0][2], "import math\nvaluable = [1]");
got = await run("1");
assert.equal(got.reply.execution_count, 9); // questions are no cells

if (!process.env.GATEWAY) { // a server with a gateway has files of its own
  const contents = new ContentsManager({ serverSettings });
  await contents.save(`${kernel.id}/in.csv`, { type: "file", format: "text", content: "a,b\n" });
  assert.equal((await run("print(open('in.csv').read(), end='')\nopen('out.bin', 'wb').write(b'\\xff')")).text, "a,b\n");
  const listed = (await contents.get(kernel.id)).content.map((f) => f.name);
  assert.ok(listed.includes("in.csv") && listed.includes("out.bin"), listed);
  assert.equal((await contents.get(`${kernel.id}/out.bin`)).content, "/w==");
  await contents.rename(`${kernel.id}/in.csv`, `${kernel.id}/b.csv`);
  assert.equal((await contents.get(`${kernel.id}/b.csv`)).content, "a,b\n");
  await contents.delete(`${kernel.id}/b.csv`);
  await assert.rejects(contents.get(`${kernel.id}/b.csv`));
}

await kernel.restart();
assert.equal((await run("'x' in globals()")).outputs[0].data["text/plain"], "False");
got = await run("import os\nprint(os.path.exists('out.bin'))");
assert.deepEqual([got.text, got.reply.execution_count], [process.env.GATEWAY ? "False\n" : "True\n", 2]);

const other = await kernels.startNew({ name: "javascript" });
assert.equal((await infoOf(other)).language_info.name, "javascript");
const future = other.requestExecute({ code: "const shape = { area: () => 2 }; shape.area()" });
const values = [];
future.onIOPub = ({ header, content }) => header.msg_type === "execute_result" && values.push(content.data["text/plain"]);
assert.equal((await future.done).content.status, "ok");
assert.deepEqual(values, ["2"]);
assert.deepEqual((await other.requestComplete({ code: "shape.ar", cursor_pos: 8 })).content.matches, ["area"]);
assert.match((await other.requestInspect({ code: "shape.area", cursor_pos: 8, detail_level: 0 })).content.data["text/plain"], /^Type: function/);

await other.shutdown();
await session.shutdown();
assert.deepEqual([...(await sessions.refreshRunning(), sessions.running())], []);
await kernels.refreshRunning();
assert.deepEqual([...kernels.running()], []);
console.log("done");
process.exit(0);
