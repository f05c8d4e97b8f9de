import { basename, dirname } from "node:path";
import { fileURLToPath } from "node:url";
export { sep } from "node:path";

const __filename = fileURLToPath(import.meta.url);
export const text = {{text}};
export default function main() {
  return dirname(__filename) === process.cwd() && basename("/a/b") === "b" ? text : "elsewhere";
}
console.log(main());
