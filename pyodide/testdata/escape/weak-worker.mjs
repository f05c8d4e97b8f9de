// Runs one attempt: in the realm as it is, or in that of the host program, which then is all that stands in its way.
const done = postMessage.bind(globalThis, "done");
const print = Deno.stdout.writeSync.bind(Deno.stdout);
addEventListener("unhandledrejection", (e) => e.preventDefault());
addEventListener("message", (e) => start(e.data), { once: true });

async function start({ source, host }) {
  if (!host) {
    const f = (async () => {}).constructor;
    await f(source)();
    return done();
  }
  const { Interpreter } = await import(`file://${host}/javascript.mjs`);
  const { TYPE } = await import(`file://${host}/wire.mjs`);
  const it = await Interpreter.start({
    interrupted: false,
    clearInterrupt() {},
    send() {},
    force() {},
    long: (type) => type === TYPE.DONE && done(),
    text(channel, id, data, from, size) {
      print(data.subarray(from, from + size));
      return size;
    },
  });
  it.calls.begin({ disk: 64 << 20, nodes: 1000, env: {} });
  await it.run(1, {}, source);
}
