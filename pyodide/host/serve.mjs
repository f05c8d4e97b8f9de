// The common part of the workers: no permissions, only the globals that scrub.mjs leaves, and an
// interpreter with the untrusted code.
import { kept } from "./scrub.mjs";
import { Sender } from "./ring.mjs";
import { pack, TYPE } from "./wire.mjs";

// The calls that change files.
const MUTATING = new Set(["mkdir", "rename", "remove", "commit", "sync", "leave"]);

// listen waits for the message of the main thread, starts an interpreter with it, and serves it.
// The interpreter is ready before it is known for which session: the call "begin" says that.
export function listen(make) {
  // An exception in a callback must not end the worker.
  kept.addEventListener("unhandledrejection", (e) => e.preventDefault());
  kept.addEventListener("message", (e) => start(make, e.data, e.ports[0]), { once: true });
}

async function start(make, { shared, assets, mode }, port) {
  // Only this closure has the port, so code cannot forge a message to it.
  const kick = port.postMessage.bind(port, null);
  const sender = new Sender(shared, kick);
  const began = performance.now();
  try {
    const it = await make(sender, assets, mode);
    port.onmessage = (e) => serve(it, sender, e.data);
    sender.send(TYPE.HELLO, 0, pack({ version: it.version, ms: Math.round(performance.now() - began) }));
  } catch (e) {
    sender.send(TYPE.BYE, 0, pack({ message: String(e?.stack ?? e).slice(0, 4000) }));
  }
}

function serve(it, sender, { op, id, request, again }) {
  switch (op) {
    case "run":
      return it.run(id, request, new TextDecoder().decode(request.data));
    case "interrupt":
      sender.acknowledge();
      return it.interrupt(id, again);
    case "ask":
      return sender.answer();
    case "call":
      return call(it, sender, id, request);
  }
}

async function call(it, sender, id, request) {
  let type = TYPE.DONE;
  let answer;
  try {
    if (!Object.hasOwn(it.calls, request.op)) throw new Error(`no call ${request.op}`);
    let result = it.calls[request.op](request, id);
    if (result instanceof Promise) result = await result; // other calls answer before anything else can happen
    answer = pack(result);
    if (MUTATING.has(request.op)) it.changed(id);
  } catch (e) {
    type = TYPE.FAIL;
    answer = pack({ errno: e?.errno ?? 0, message: String(e?.message ?? e).slice(0, 1000) });
  }
  sender.long(type, id, answer);
}
