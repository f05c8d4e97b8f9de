// The trusted half of a sandbox. It owns standard input and output, the clocks and the nonce, and
// starts the worker that contains the interpreter. When the worker is ready, it gives up its last
// permission.
import { after, Leftovers, Run } from "./clock.mjs";
import { allocate, GATHER, isText, Receiver } from "./ring.mjs";
import { CHANNEL, END, MORE, pack, Reader, TYPE, unpack, Writer } from "./wire.mjs";

// Exit codes, as in host.go.
const EXIT = { protocol: 2, stuck: 3, broken: 4, idle: 10, life: 11, left: 12 };

const LEAVE = 1000; // ms in which the Go program should end this process before it ends by itself

const dir = new URL(".", import.meta.url);
const reader = new Reader((b) => Deno.stdin.read(b));
const shared = allocate();
const receiver = new Receiver(shared);

const first = await reader.frame();
if (first?.type !== TYPE.HELLO) Deno.exit(EXIT.protocol);
const { data: nonce, mode, ...names } = unpack(first.payload);
const writer = new Writer((b) => Deno.stdout.write(b), (b) => Deno.stdout.writeSync(b), nonce.slice());

let run = null; // the run in progress
const calls = new Set(); // calls without a reply
let idle = null; // the clock that ends an idle session
let idleLimit = 0; // ms; a process that is no session yet is ended by the Go program
let up = false;
let draining = false;
let gathered = null; // the timer of the next look at the ring

const { port1: port, port2 } = new MessageChannel();
port.onmessage = () => {
  leftovers.look();
  drain();
};
const javascript = mode === "javascript";
const worker = new Worker(new URL(javascript ? "worker-javascript.mjs" : "worker.mjs", dir), { type: "module", deno: { permissions: "none" } });
worker.onerror = (e) => {
  e.preventDefault();
  die("worker: " + e.message);
};
worker.onmessageerror = () => die("worker: message");
const leftovers = new Leftovers({
  ask: () => {
    receiver.ask();
    port.postMessage({ op: "ask" });
  },
  answered: () => receiver.answered,
  busy: () => calls.size > 0,
  over: () => Deno.exit(EXIT.left),
});
await boot();
for (let f; (f = await reader.frame()); ) serve(f);
Deno.exit(0);

// boot gives the worker its assets. They are read concurrently, and passed without a copy.
async function boot() {
  if (javascript) return worker.postMessage({ shared, assets: {}, mode }, [port2]);
  const read = (name) => Deno.readFile(new URL(name, dir));
  const text = (name) => Deno.readTextFile(new URL(name, dir));
  const [wasm, lock, stdlib, snapshot, ...sources] = await Promise.all([
    read("pyodide.asm.wasm").then((b) => WebAssembly.compile(b)),
    text("lock.json"),
    read(names.stdlib),
    names.snapshot ? read(names.snapshot) : undefined,
    ...Object.values(names.modules).map(text),
  ]);
  const modules = Object.fromEntries(Object.keys(names.modules).map((name, i) => [name, sources[i]]));
  worker.postMessage({ shared, assets: { wasm, lock, stdlib, snapshot, modules }, mode }, [
    port2,
    stdlib.buffer,
    ...(snapshot ? [snapshot.buffer] : []),
  ]);
}

// serve handles a frame of the Go program.
function serve({ type, flags, stream: id, payload }) {
  switch (type) {
    case TYPE.OPEN:
      return open(id, unpack(payload));
    case TYPE.DATA:
      if (run?.id === id) receiver.feed(flags & END ? null : payload);
      return;
    case TYPE.STOP:
      if (run?.id === id) run.interrupt();
      return;
    case TYPE.CREDIT:
      return receiver.confirm(new DataView(payload.buffer).getUint32(0));
    default:
      throw new Error(`frame of type ${type}`);
  }
}

// open passes a request to the worker. The first one in a session begins it.
function open(id, request) {
  use();
  if (request.op === "begin") {
    idleLimit = request.idle_ms;
    if (request.life_ms > 0) after(request.life_ms, () => Deno.exit(EXIT.life));
  }
  if (request.op !== "run") {
    calls.add(id);
    port.postMessage({ op: "call", id, request });
    return run ?? rest();
  }
  run = new Run(id, Number(request.wall) / 1e6, receiver, {
    tell: (again) => port.postMessage({ op: "interrupt", id, again }),
    late: () => writer.send(TYPE.STOP, id),
    stuck: () => stuck(id),
  });
  receiver.begin(request.stdin);
  leftovers.hurry(async () => {
    // Sent before the worker can have the code. Without this frame none of the code has run,
    // whatever ends the process.
    await writer.sent(TYPE.OPEN, id);
    port.postMessage({ op: "run", id, request });
  });
}

// drain passes on the frames in the ring, as fast as the Go program accepts them. Behind text it
// waits a little: code that prints a line often prints more soon.
async function drain() {
  if (draining) return;
  draining = true;
  try {
    for (let frames; (frames = receiver.take()).length; ) {
      frames.forEach(pass);
      await writer.flushed();
      if (isText(frames.at(-1)) && receiver.gathering) {
        gathered ??= after(GATHER, () => {
          gathered = null;
          drain();
        });
        break;
      }
    }
  } catch (e) {
    die(String(e?.message ?? e));
  }
  draining = false;
}

function pass({ type, flags, channel, stream: id, payload }) {
  const last = (type === TYPE.DONE || type === TYPE.FAIL) && !(flags & (MORE | END));
  if (type === TYPE.HELLO) {
    if (up) throw new Error("ready twice");
    up = true;
    // From here on no code in this process can read a file.
    Deno.permissions.revokeSync({ name: "read" });
  }
  if (run?.id === id) {
    if (type === TYPE.STARTED) {
      leftovers.stop();
      run.started();
    }
    if (type === TYPE.DATA && channel === CHANNEL.ENTRIES && flags & END) run.ended();
    if (last) {
      leftovers.begin(run.left);
      run = null;
      rest();
    }
  }
  if (last) calls.delete(id);
  writer.send(type, id, payload, channel, flags);
}

async function stuck(id) {
  writer.send(TYPE.FAIL, id);
  await writer.flushed();
  // The Go program ends this process. If the Go program is gone or stopped, the process ends
  // itself.
  after(LEAVE, () => Deno.exit(EXIT.stuck));
}

// use and rest stop and start the idle clock.
function use() {
  idle?.stop();
}

function rest() {
  idle?.stop();
  if (idleLimit > 0) idle = after(idleLimit, () => Deno.exit(EXIT.idle));
}

async function die(message) {
  writer.send(TYPE.BYE, 0, pack({ message: message.slice(0, 1000) }));
  await writer.flushed();
  Deno.exit(EXIT.broken);
}
