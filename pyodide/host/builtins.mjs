// Prints the import map of a sandbox: Pyodide, and nothing where the modules of Node would be. A program without permissions may import
// those, and some of them reach further than the globals that the worker gives up. Those that need nothing of the machine have a name of
// their own, under which sessions with JavaScript get them.
import { builtinModules } from "node:module";

// Not in the list, because they exist with their prefix only.
const PREFIXED = ["sea", "sqlite", "test", "test/reporters"];

const imports = { pyodide: "./pyodide.mjs", "pyodide-asm": "./pyodide.asm.mjs" };
for (const name of [...builtinModules, ...PREFIXED]) {
  const bare = name.replace(/^node:/, "");
  imports[bare] = imports[`node:${bare}`] = "./denied";
}
const HARMLESS = ["assert", "assert/strict", "buffer", "crypto", "events", "path", "path/posix", "querystring", "stream", "stream/promises", "string_decoder", "url", "util", "util/types"];
for (const name of HARMLESS) imports[`execbroker:${name}`] = `node:${name}`;
console.log(JSON.stringify({ imports }, null, 1));
