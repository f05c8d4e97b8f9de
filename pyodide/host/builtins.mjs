// Prints the import map of a sandbox. It has Pyodide, and maps the modules of Node to nothing,
// because a program without permissions may import those, and some of them give more access than
// the globals that the worker removes. Modules that need nothing of the machine have a separate
// name, which sessions with JavaScript use.
import { builtinModules } from "node:module";

// Not in the list, because they exist only with their prefix.
const PREFIXED = ["sea", "sqlite", "test", "test/reporters"];

const imports = { pyodide: "./pyodide.mjs", "pyodide-asm": "./pyodide.asm.mjs" };
for (const name of [...builtinModules, ...PREFIXED]) {
  const bare = name.replace(/^node:/, "");
  imports[bare] = imports[`node:${bare}`] = "./denied";
}
const HARMLESS = ["assert", "assert/strict", "buffer", "crypto", "events", "path", "path/posix", "querystring", "stream", "stream/promises", "string_decoder", "url", "util", "util/types"];
for (const name of HARMLESS) imports[`execbroker:${name}`] = `node:${name}`;
console.log(JSON.stringify({ imports }, null, 1));
