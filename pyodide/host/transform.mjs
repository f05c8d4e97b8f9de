// Makes of a cell of JavaScript what can be evaluated again and again in one realm: its top level may await, its declarations become
// properties of the global object and may be repeated, its last expression is its value. Lines stay where they are.
import { parse } from "./acorn.mjs";

// The functions that transformed code calls. They are properties of the global object that cannot be changed.
export const RUN = "__execbroker_run"; // () => the run that the code belongs to
export const BACK = "__execbroker_back"; // (run, value) => value, once it is known that the run is the one that goes on
export const IMPORT = "__execbroker_import"; // instead of import()

const FUNCTIONS = new Set(["FunctionDeclaration", "FunctionExpression", "ArrowFunctionExpression", "StaticBlock"]);
const VALUE = "return{__proto__:null,value:("; // an object, because the value may be a promise

// bare removes elements that all arrays would inherit. Adding to a list assigns, so a setter among them could take away what the parser has
// found, or what has to be changed.
function bare() {
  for (const key of Reflect.ownKeys(Array.prototype)) {
    if (typeof key !== "string" || !/^\d+$/.test(key)) continue;
    if (!Reflect.deleteProperty(Array.prototype, key)) throw new TypeError(`Array.prototype[${key}] keeps the sandbox from evaluating anything`);
  }
}

// cell returns the parts to evaluate, in order: the names to declare, the functions, and the body, which is an async function.
export function cell(source) {
  bare();
  const tree = parse(source, { ecmaVersion: "latest", sourceType: "script", allowAwaitOutsideFunction: true });
  const edits = [];
  const names = new Set();
  const functions = [];
  common(tree, edits);
  for (const [node, parent] of declarations(tree)) {
    switch (node.type) {
      case "VariableDeclaration":
        for (const d of node.declarations) bound(d.id, names);
        assign(source, node, parent, edits);
        break;
      case "ClassDeclaration":
        names.add(node.id.name);
        edits.push([node.start, node.start, `void (${node.id.name} = `], [node.end, node.end, ");"]);
        break;
      case "FunctionDeclaration":
        functions.push(node);
    }
  }
  const last = tree.body.findLast((n) => n.type !== "EmptyStatement");
  if (last?.type === "ExpressionStatement") {
    const end = source[last.end - 1] === ";" ? last.end - 1 : last.end;
    edits.push([end, end, ")};"]);
    edits.unshift([last.start, last.start, VALUE]);
  }
  const strict = tree.body[0]?.directive === "use strict";
  let hoisted = strict ? '"use strict";' : "";
  let body = "(async()=>{" + (strict ? '"use strict";' : "");
  let [from, to] = [0, 0];
  for (const f of functions) {
    hoisted += blank(source.slice(from, f.start)) + render(source, f.start, f.end, inside(edits, f));
    body += render(source, to, f.start, edits) + ";" + blank(source.slice(f.start, f.end));
    from = to = f.end;
  }
  body += render(source, to, source.length, edits) + "\n})()";
  // What strict code that is evaluated declares is its own.
  if (strict) hoisted += functions.map((f) => `;globalThis.${f.id.name}=${f.id.name}`).join("");
  return { names: [...names], all: [...names, ...functions.map((f) => f.id.name)], hoisted: functions.length ? hoisted : "", body };
}

// script transforms code that is evaluated by the code itself.
export function script(source) {
  bare();
  const edits = [];
  common(parse(source, { ecmaVersion: "latest", sourceType: "script" }), edits);
  return render(source, 0, source.length, edits);
}

// common edits what is the same everywhere: what may wait, and import().
function common(tree, edits) {
  walk(tree, null, (node) => {
    if (node.type === "AwaitExpression") edits.push([node.start, node.start, `${BACK}(${RUN}(), `]);
    if (node.type === "ImportExpression") edits.push([node.start, node.start + "import".length, IMPORT]);
    return true;
  }, (node) => {
    if (node.type === "AwaitExpression") edits.push([node.end, node.end, ")"]);
  });
}

// declarations returns those that belong to the top level, each with its parent.
function declarations(tree) {
  const found = [];
  walk(tree, null, (node, parent) => {
    const top = parent === tree;
    if (node.type === "VariableDeclaration" && (node.kind === "var" || top && (node.kind === "let" || node.kind === "const"))) found.push([node, parent]);
    if (top && (node.type === "ClassDeclaration" || node.type === "FunctionDeclaration")) found.push([node, parent]);
    return !FUNCTIONS.has(node.type);
  });
  return found;
}

// assign makes assignments of a declaration.
function assign(source, node, parent, edits) {
  const first = node.declarations[0];
  const last = node.declarations.at(-1);
  if (parent.type === "ForInStatement" && parent.left === node || parent.type === "ForOfStatement" && parent.left === node) {
    edits.push([node.start, first.start, ""]);
    return;
  }
  const statement = !(parent.type === "ForStatement" && parent.init === node);
  edits.push([node.start, first.start, (statement ? "void (" : "(") + source.slice(node.start + node.kind.length, first.start)]);
  for (const d of node.declarations) {
    if (!d.init && node.kind === "let") edits.push([d.end, d.end, " = void 0"]);
  }
  edits.push([last.end, last.end, ")"]);
  if (statement && source[node.end - 1] !== ";") edits.push([node.end, node.end, ";"]);
}

// bound adds the names that a pattern binds.
function bound(pattern, names) {
  switch (pattern?.type) {
    case "Identifier":
      names.add(pattern.name);
      break;
    case "ObjectPattern":
      for (const p of pattern.properties) bound(p.type === "RestElement" ? p.argument : p.value, names);
      break;
    case "ArrayPattern":
      for (const p of pattern.elements) bound(p, names);
      break;
    case "AssignmentPattern":
      bound(pattern.left, names);
      break;
    case "RestElement":
      bound(pattern.argument, names);
  }
}

// walk visits node and what is below, unless enter says no.
function walk(node, parent, enter, leave) {
  if (!enter(node, parent)) return;
  for (const key of Object.keys(node)) {
    const value = node[key];
    for (const child of Array.isArray(value) ? value : [value]) {
      if (typeof child?.type === "string" && child !== parent) walk(child, node, enter, leave);
    }
  }
  leave?.(node);
}

// render returns a part of the source with what edits say: start, end, what comes instead.
function render(source, from, to, edits) {
  const here = edits.filter(([start, end]) => start >= from && end <= to).sort((a, b) => a[0] - b[0]);
  let text = "";
  let at = from;
  for (const [start, end, instead] of here) {
    text += source.slice(at, start) + instead;
    at = end;
  }
  return text + source.slice(at, to);
}

// inside returns the edits that are within a node.
function inside(edits, { start, end }) {
  return edits.filter((e) => e[0] > start && e[1] < end);
}

// blank keeps the ends of lines.
function blank(text) {
  return text.replace(/[^\n\r\u2028\u2029]/g, " ");
}
