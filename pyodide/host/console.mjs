// The console of JavaScript sessions.
import { formatWithOptions, inspect } from "execbroker:util";
import { kept } from "./scrub.mjs";

const WIDTH = 1000; // the largest indentation of groups

// console makes a console like that of Node.js, which writes with write(stream, text). warn prints
// what Node prints as a warning of the process.
export function console(write, warn) {
  const counts = new Map();
  const timers = new Map();
  let indent = "";
  const print = (stream) => (...args) => {
    const text = formatWithOptions({ colors: false }, ...args);
    write(stream, (indent ? indent + text.replaceAll("\n", "\n" + indent) : text) + "\n");
  };
  const out = print("stdout");
  const err = print("stderr");
  const group = (...args) => {
    if (args.length) out(...args);
    if (indent.length < WIDTH) indent += "  ";
  };
  const timed = (method, label, args) => {
    if (!timers.has(label)) return warn(`No such label '${label}' for console.${method}()`);
    out("%s: %s", label, duration(kept.time() - timers.get(label)), ...args);
  };
  const methods = {
    log: out,
    info: out,
    debug: out,
    warn: err,
    error: err,
    dirxml: out,
    table: (value, columns) => {
      if (columns !== undefined && !Array.isArray(columns)) throw new TypeError('The "properties" argument must be an instance of Array.');
      const rows = value !== null && typeof value === "object" ? grid(value, columns) : undefined;
      return rows ? out(drawn(rows)) : out(value);
    },
    dir: (value, options) => out(inspect(value, { customInspect: false, colors: false, ...options })),
    trace: (...args) => {
      const e = { name: "Trace", message: formatWithOptions({ colors: false }, ...args) };
      Error.captureStackTrace(e);
      err(e.stack);
    },
    assert: (ok, ...args) => {
      if (ok) return;
      args[0] = `Assertion failed${args.length === 0 ? "" : `: ${args[0]}`}`;
      err(...args);
    },
    count: (label = "default") => {
      const n = (counts.get(`${label}`) ?? 0) + 1;
      counts.set(`${label}`, n);
      out(`${label}: ${n}`);
    },
    countReset: (label = "default") => {
      if (!counts.delete(`${label}`)) warn(`Count for '${label}' does not exist`);
    },
    group,
    groupCollapsed: group,
    groupEnd: () => void (indent = indent.slice(2)),
    time: (label = "default") => {
      if (timers.has(`${label}`)) return warn(`Label '${label}' already exists for console.time()`);
      timers.set(`${label}`, kept.time());
    },
    timeLog: (label = "default", ...args) => timed("timeLog", `${label}`, args),
    timeEnd: (label = "default") => {
      timed("timeEnd", `${label}`, []);
      timers.delete(`${label}`);
    },
  };
  return Object.assign(Object.create({}), methods, { [Symbol.toStringTag]: "console" });
}

// duration formats milliseconds like the timers of consoles.
function duration(ms) {
  if (ms < 1000) return `${Number(ms.toFixed(3))}ms`;
  const two = (n) => String(n).padStart(2, "0");
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(3)}s`;
  const [whole, part] = (s % 60).toFixed(3).split(".");
  const m = Math.floor(s / 60);
  if (m < 60) return `${m}:${two(whole)}.${part} (m:ss.mmm)`;
  return `${Math.floor(m / 60)}:${two(m % 60)}:${two(whole)} (h:mm:ss)`;
}

// grid makes the rows of cells for console.table, the header first.
function grid(value, only) {
  const text = (v) => inspect(v, { maxArrayLength: 3, breakLength: Infinity, colors: false, depth: v !== null && typeof v === "object" && !Array.isArray(v) && Object.keys(v).length > 2 ? -1 : 0 });
  const map = value instanceof Map;
  const counted = map || value instanceof Set;
  const entries = map ? [...value] : counted ? [...value].map((v) => [undefined, v]) : Object.keys(value).map((k) => [k, value[k]]);
  const columns = new Map(only?.map((name) => [`${name}`, new Map()]));
  const plain = new Map();
  const rows = entries.map(([key, v], row) => {
    const composite = v !== null && (typeof v === "object" || typeof v === "function");
    if (map || !composite) plain.set(row, text(v));
    else {
      for (const name of only?.map(String) ?? Object.keys(v)) {
        if (!columns.has(name)) columns.set(name, new Map());
        if (Object.hasOwn(v, name)) columns.get(name).set(row, text(v[name]));
      }
      if (counted) plain.set(row, text(v));
    }
    return counted ? [String(row), ...(map ? [text(key)] : [])] : [key];
  });
  const shown = counted ? [] : [...columns];
  if (plain.size) shown.push(["Values", plain]);
  const heading = [counted ? "(iteration index)" : "(index)", ...(map ? ["Key"] : []), ...shown.map(([name]) => name)];
  return [heading, ...rows.map((first, row) => [...first, ...shown.map(([, cells]) => cells.get(row) ?? "")])];
}

// drawn draws rows with a border.
function drawn(rows) {
  const widths = rows[0].map((_, i) => rows.reduce((most, row) => Math.max(most, columnsOf(row[i])), 0) + 2);
  const rule = (left, middle, right) => left + widths.map((n) => "─".repeat(n)).join(middle) + right;
  const line = (row) => `│${row.map((c, i) => ` ${c}${" ".repeat(widths[i] - 1 - columnsOf(c))}`).join("│")}│`;
  return [rule("┌", "┬", "┐"), line(rows[0]), rule("├", "┼", "┤"), ...rows.slice(1).map(line), rule("└", "┴", "┘")].join("\n");
}

// columnsOf returns the width of a text in columns of a terminal: East Asian characters and emoji
// take two, combining marks take none.
function columnsOf(text) {
  let n = 0;
  for (const c of text.normalize("NFC")) n += /[\p{Mn}\p{Me}\p{Cf}\p{Cc}]/u.test(c) ? 0 : /[\u1100-\u115f\u2e80-\u303e\u3041-\u33ff\u3400-\u4dbf\u4e00-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\p{Extended_Pictographic}]/u.test(c) ? 2 : 1;
  return n;
}
