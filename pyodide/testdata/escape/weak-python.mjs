// Runs attempts in Pyodide as it comes, without what the sandbox adds: the control that shows that they can work.
// Argument: the address of pyodide.mjs. Standard input: a JSON object with the prelude and the attempts.
const { loadPyodide } = await import(Deno.args[0]);
const { prelude, attempts } = JSON.parse(await new Response(Deno.stdin.readable).text());
addEventListener("unhandledrejection", (e) => e.preventDefault());
addEventListener("error", (e) => e.preventDefault());

let py, broken;

async function start() {
  const indexURL = decodeURI(new URL(".", Deno.args[0]).pathname);
  py = await loadPyodide({ indexURL, stdout: (s) => console.log(s), stderr: () => {} });
  broken = new Promise((resolve) => (py._api.on_fatal = resolve));
  py.runPython(prelude);
}

await start();
for (const { name, code } of attempts) {
  console.log("BEGIN " + name);
  const fatal = await Promise.race([broken.then((e) => e ?? "fatal"), py.globals.get("attempt")(code).catch(() => null)]);
  if (fatal) {
    console.log("fatal: " + String(fatal).slice(0, 300));
    await start();
  }
  console.log("END " + name);
}
Deno.exit(0);
