// Runs attempts of JavaScript without what the sandbox adds, or with one layer of it: the control that shows that they can work, and which
// layer is in their way. Each has a worker of its own. Standard input: a JSON object with the prelude, the attempts, and the directory of
// the host program if its realm is to be around them.
const { prelude, attempts, host } = JSON.parse(await new Response(Deno.stdin.readable).text());

for (const { name, code } of attempts) {
  console.log("BEGIN " + name);
  const worker = new Worker(new URL("weak-worker.mjs", import.meta.url), { type: "module" });
  await new Promise((resolve) => {
    const clock = setTimeout(resolve, 10_000);
    worker.onmessage = (e) => {
      if (e.data !== "done") return; // one that comes from an attempt
      clearTimeout(clock);
      resolve();
    };
    worker.onerror = (e) => {
      e.preventDefault();
      console.log("error: " + e.message);
      clearTimeout(clock);
      resolve();
    };
    worker.postMessage({ source: `${prelude}\nawait attempt(async () => {\n${code}\n})`, host });
  });
  worker.terminate();
  console.log("END " + name);
}
Deno.exit(0);
