// Transforms a cell of JavaScript so that it can be evaluated again and again in one realm: its top
// level may await, its declarations become properties of the global object and may be repeated, and
// its last expression is its value. Line numbers do not change.
import { parse } from "./acorn.mjs";

// The functions that transformed code calls. They are constants of the global scope and not
// properties: code can use them only by name, and names with the same prefix are refused in code.
export const OURS = "__execbroker_";
export const RUN = OURS + "run"; // () => the run that the code belongs to
export const BACK = OURS + "back"; // (run, value) => value, after a check that the run may continue
export const IMPORT = OURS + "import"; // instead of import()
export const EVAL = OURS + "eval"; // the value of eval if it is not called directly
export const TEXT = OURS + "text"; // (x) => x for a direct call of eval, which sees the scope around it
export const VALUE = OURS + "value"; // (x) => x as the value of the cell
export const CONSTANT = OURS + "constant"; // () => throws the error of an assignment to a constant

const FUNCTIONS = new Set(["FunctionDeclaration", "FunctionExpression", "ArrowFunctionExpression", "StaticBlock"]);
const OPTIONS = { ecmaVersion: "latest", allowHashBang: true };

// sound removes elements that all arrays would inherit. Adding to an array is an assignment, so an
// inherited setter could remove results of the parser or required changes.
export function sound() {
  for (const key of Reflect.ownKeys(Array.prototype)) {
    if (typeof key !== "string" || !/^\d+$/.test(key)) continue;
    if (!Reflect.deleteProperty(Array.prototype, key)) throw new TypeError(`Array.prototype[${key}] keeps the sandbox from evaluating anything`);
  }
}

// parsed parses a cell. A cell with import declarations is a module.
function parsed(source, edits) {
  // The end of an HTML comment is a comment only at the beginning of a line, and the first line of
  // a cell does not stay at the beginning.
  const onComment = (block, text, start) => void (source.startsWith("-->", start) && edits.push([start, start + 3, "// "]));
  const options = { ...OPTIONS, allowAwaitOutsideFunction: true, allowReturnOutsideFunction: true, onComment };
  try {
    return parse(source, { ...options, sourceType: "script" });
  } catch (e) {
    // Spaces before the word are those of its line: else the work on empty lines is the square of
    // their number.
    if (!/^[^\S\n\r\u2028\u2029]*(import|export)\b(?!\s*[.(])/m.test(source)) throw e;
    edits.length = 0;
    const tree = parse(source, { ...options, sourceType: "module" });
    const wrong = tree.body.find((n) => n.type.startsWith("Export"));
    if (!wrong) return tree;
    throw Object.assign(new SyntaxError("a cell has nobody to export to"), { loc: { line: source.slice(0, wrong.start).split("\n").length, column: 0 } });
  }
}

// cell returns the parts to evaluate, in order: the names to declare, each with its kind, the
// functions, and the body. The body is a script, or an async function around the cell if that waits
// or returns. Code sees such a function as the caller of what it calls, so there is none without
// need. constants has the constant names of earlier cells, and those of this cell are added.
export function cell(source, constants) {
  sound();
  const edits = [];
  const tree = parsed(source, edits);
  const names = new Map();
  const functions = [];
  const all = declarations(tree);
  for (const [node] of all) {
    const kind = { VariableDeclaration: node.kind, FunctionDeclaration: "function", ClassDeclaration: "let", ImportDeclaration: "const" }[node.type];
    const found = new Set();
    if (node.type === "VariableDeclaration") for (const d of node.declarations) bound(d.id, found);
    else if (node.type === "ImportDeclaration") for (const s of node.specifiers) found.add(s.local.name);
    else found.add(node.id.name);
    for (const name of found) {
      names.set(name, kind);
      if (kind === "const") constants.add(name);
      else constants.delete(name);
    }
  }
  common(tree, edits, { constants, top: new Set(all.map(([node]) => node)), wrapped: true });
  for (const [node, parent] of all) {
    switch (node.type) {
      case "VariableDeclaration":
        assign(source, node, parent, edits);
        break;
      case "ClassDeclaration":
        edits.push([node.start, node.start, `void (${node.id.name} = `], [node.end, node.end, ");"]);
        break;
      case "ImportDeclaration":
        edits.push([node.start, node.end, imported(source, node)]);
        break;
      case "FunctionDeclaration":
        functions.push(node);
    }
  }
  const around = waits(tree);
  const last = tree.body.findLast((n) => n.type !== "EmptyStatement");
  if (last?.type === "ExpressionStatement") {
    const end = source[last.end - 1] === ";" ? last.end - 1 : last.end;
    edits.push([end, end, "));"]);
    edits.unshift([last.start, last.start, `${around ? "return " : ""}${VALUE}((`]);
  }
  if (source.startsWith("#!")) edits.unshift([0, 2, "//"]);
  const strict = tree.body[0]?.directive === "use strict";
  let hoisted = strict ? '"use strict";' : "";
  let body = (around ? "(async()=>{" : "") + (strict ? '"use strict";' : "");
  let [from, to] = [0, 0];
  for (const f of functions) {
    hoisted += blank(source.slice(from, f.start)) + render(source, f.start, f.end, inside(edits, f));
    body += render(source, to, f.start, edits) + ";" + blank(source.slice(f.start, f.end));
    from = to = f.end;
  }
  body += render(source, to, source.length, edits) + "\n";
  if (around) body += "})()";
  else if (last?.type !== "ExpressionStatement") body += ";void 0"; // not the value of a loop
  // Declarations in strict evaluated code are local to it.
  if (strict) hoisted += functions.map((f) => `;globalThis.${f.id.name}=${f.id.name}`).join("");
  return { names: [...names], hoisted: functions.length ? hoisted : "", body };
}

// waits reports whether a cell has an await or a return of its own.
function waits(tree) {
  let found = false;
  walk(tree, null, (node) => {
    const own = ["AwaitExpression", "ReturnStatement", "ImportDeclaration"].includes(node.type);
    found ||= own || node.type === "ForOfStatement" && node.await || node.kind === "await using";
    return !FUNCTIONS.has(node.type);
  });
  return found;
}

// imported converts an import declaration to an assignment.
function imported(source, node) {
  const load = `await ${BACK}(${RUN}(), ${IMPORT}(${node.source.raw}))`;
  let space = "";
  const names = [];
  for (const s of node.specifiers) {
    if (s.type === "ImportNamespaceSpecifier") space = s.local.name;
    else names.push(`${s.type === "ImportDefaultSpecifier" ? "default" : source.slice(s.imported.start, s.imported.end)}: ${s.local.name}`);
  }
  const to = [];
  if (space) to.push(`${space} = ${load}`);
  if (names.length) to.push(`({${names.join(", ")}} = ${space || load})`);
  return `void (${to.join(", ") || load});` + "\n".repeat(source.slice(node.start, node.end).split("\n").length - 1);
}

// script transforms code that code itself evaluates. With direct it sees the scope of the function
// around it.
export function script(source, direct = false) {
  sound();
  const edits = [];
  const more = direct ? { allowSuperOutsideMethod: true, checkPrivateFields: false } : {};
  common(parse(source, { ...OPTIONS, ...more, sourceType: "script" }), edits);
  return render(source, 0, source.length, edits);
}

// common makes the edits that are the same everywhere: awaits, import(), eval, and assignments to
// constants of the top level. wrapped says that the code will be in a function that it does not
// know about: declarations of eval there belong to the global scope.
function common(tree, edits, { constants = new Set(), top = new Set(), wrapped = false } = {}) {
  const shadowed = constants.size ? inner(tree, top) : undefined;
  let scopes = wrapped ? 0 : 1; // number of scopes around the visited node
  const short = new Set(); // identifiers that are both name and value of a property
  const constant = (node, target) => {
    const found = new Set();
    bound(target, found);
    for (const name of found) {
      if (!constants.has(name) || shadowed.has(name)) continue;
      edits.push([node.start, node.start, `(${CONSTANT}(), `], [node.end, node.end, ")"]);
      return;
    }
  };
  walk(tree, null, (node, parent) => {
    if (scope(node)) scopes++;
    switch (node.type) {
      case "AwaitExpression":
        edits.push([node.start, node.start, `${BACK}(${RUN}(), `]);
        break;
      case "ImportExpression":
        if (node.phase) throw new SyntaxError(`import.${node.phase} is not supported`);
        edits.push([node.start, node.start + "import".length, IMPORT]);
        break;
      case "MetaProperty":
        if (node.meta.name === "import") throw new SyntaxError("Cannot use 'import.meta' outside a module");
        break;
      case "Property":
        if (node.shorthand) short.add(node.value.type === "AssignmentPattern" ? node.value.left : node.value);
        break;
      case "AssignmentExpression":
        constant(node, node.left);
        break;
      case "UpdateExpression":
        constant(node, node.argument);
        break;
      case "Identifier":
        if (node.name.startsWith(OURS)) throw new SyntaxError(`${node.name} belongs to the sandbox`);
        if (node.name !== "eval" || key(node, parent)) break;
        if (parent.type.startsWith("Class") && parent.id === node) throw new SyntaxError("Unexpected eval or arguments in strict mode");
        if (parent.type === "CallExpression" && parent.callee === node && !parent.optional && scopes) {
          const args = parent.arguments;
          if (args.length) edits.push([args[0].start, args[0].start, TEXT + "("], [args.at(-1).end, args.at(-1).end, ")"]);
        } else {
          edits.push([node.start, node.end, (short.has(node) ? "eval: " : "") + EVAL]);
        }
    }
    return true;
  }, (node) => {
    if (scope(node)) scopes--;
    if (node.type === "AwaitExpression") edits.push([node.end, node.end, ")"]);
  });
}

// scope reports whether a node has its own names.
function scope(node) {
  if (FUNCTIONS.has(node.type) || node.type === "CatchClause" || node.type.startsWith("Class")) return true;
  const declares = (n) => n?.type === "VariableDeclaration" && n.kind !== "var" || n?.type === "ClassDeclaration" || n?.type === "FunctionDeclaration";
  return node.type === "BlockStatement" && node.body.some(declares) || declares(node.init) || declares(node.left);
}

// key reports whether an identifier is only the name of a property.
function key(node, parent) {
  if (parent.type === "ImportSpecifier") return true;
  if (parent.computed) return false;
  return parent.type === "MemberExpression" ? parent.property === node : parent.key === node && parent.type !== "Identifier";
}

// inner returns the names that are bound below the top level.
function inner(tree, top) {
  const names = new Set();
  walk(tree, null, (node) => {
    if (node.type === "VariableDeclaration" && !top.has(node)) for (const d of node.declarations) bound(d.id, names);
    if ((FUNCTIONS.has(node.type) || node.type.startsWith("Class")) && !top.has(node) && node.id) names.add(node.id.name);
    for (const p of node.params ?? []) bound(p, names);
    if (node.type === "CatchClause") bound(node.param, names);
    return true;
  });
  return names;
}

// declarations returns the declarations of the top level, each with its parent.
function declarations(tree) {
  const found = [];
  walk(tree, null, (node, parent) => {
    const top = parent === tree;
    if (node.type === "VariableDeclaration" && (node.kind === "var" || top && (node.kind === "let" || node.kind === "const"))) found.push([node, parent]);
    if (top && ["ClassDeclaration", "FunctionDeclaration", "ImportDeclaration"].includes(node.type)) found.push([node, parent]);
    return !FUNCTIONS.has(node.type);
  });
  return found;
}

// assign converts a declaration to assignments.
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

// walk visits node and its descendants, unless enter returns false.
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

// render returns a part of the source after edits: start, end, replacement.
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

// inside returns the edits inside a node.
function inside(edits, { start, end }) {
  return edits.filter((e) => e[0] > start && e[1] < end);
}

// blank keeps only the line breaks.
function blank(text) {
  return text.replace(/[^\n\r\u2028\u2029]/g, " ");
}
