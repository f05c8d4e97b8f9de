// What a cell of JavaScript means: the one source for Pyodide and for the runner, as cell.py is for
// Python. How they evaluate a cell differs, and is not in here.
//
// meaning(host) returns what both use. A host has
//
//   inspect(value, options)  inspect of Node's module util
//   isProxy(value)           types.isProxy of the same module
//   encode(text)             the bytes of a text in UTF-8
//   decode(digits)           the bytes of base64 without padding
//   stack(error, text, cell) what the stack of an error says, whose text this is: {before, frames,
//                            line}, the text before its heading, the lines for frames of the user's
//                            code, and the line in the cell, or 0
//
// The code of a cell shares its realm with this function and may replace all that is global. So
// what is needed later is bound here, before. The runner has the function inside its own program.
export function meaning(host) {
  const { Array, ArrayBuffer, DataView, JSON, Map, Number, Object, RangeError, Reflect, String, TypeError, Uint8Array } = globalThis;

  // Limits of what is sent. Text is cut; of other representations too much is an error.
  const MAX_TEXT = 1 << 20; // characters of text/plain
  const MAX_DATA = 16 << 20; // bytes of a representation
  const MAX_TYPES = 32; // representations of a value
  const MAX_TYPE = 100; // characters of a media type
  const MAX_JSON = 1 << 20; // characters of application/json made from plain values
  const MAX_DEPTH = 50; // of the same
  const MAX_NAME = 200; // characters of the type of an error
  const MAX_MESSAGE = 16 << 10;
  const MAX_TRACEBACK = 64 << 10;
  const MAX_ERRORS = 20; // that a traceback tells of, with causes
  const MAX_SHOWN = 200; // characters of a line that a syntax error shows

  const DISPLAY = globalThis.Symbol.for("Jupyter.display"); // the convention of other notebooks
  const TYPE = /^[a-z0-9][a-z0-9!#$&^_.+-]*\/[a-z0-9][a-z0-9!#$&^_.+-]*$/;

  const cut = (s, n) => (s.length <= n ? s : `${s.slice(0, n / 2)}\n... ${s.length - n} characters left out ...\n${s.slice(-n / 2)}`);

  // Values.

  const plainText = (value) => host.encode(cut(host.inspect(value, { maxStringLength: MAX_TEXT }), MAX_TEXT));

  // plainJSON returns the JSON text of a value that consists of plain containers of the language,
  // or undefined. It runs no code of the user.
  function plainJSON(value) {
    let text = "";
    const put = (s) => {
      if (text.length + s.length > MAX_JSON) throw new RangeError("too large");
      text += s;
    };
    const own = (o, key) => {
      const d = Reflect.getOwnPropertyDescriptor(o, key);
      if (d === undefined || !Object.hasOwn(d, "value")) throw new TypeError("not plain");
      return d.value;
    };
    const walk = (v, depth) => {
      if (depth > MAX_DEPTH || (typeof v === "string" && v.length > MAX_JSON)) throw new RangeError("too large");
      if (v === null || typeof v === "boolean" || typeof v === "string" || Number.isFinite(v)) return put(JSON.stringify(v));
      if (typeof v !== "object" || host.isProxy(v)) throw new TypeError("not plain");
      const prototype = Object.getPrototypeOf(v);
      if (Array.isArray(v)) {
        if (prototype !== Array.prototype) throw new TypeError("not plain");
        put("[");
        for (let i = 0; i < v.length; i++) {
          if (i) put(", ");
          walk(own(v, i), depth + 1);
        }
        return put("]");
      }
      if (prototype !== Object.prototype && prototype !== null) throw new TypeError("not plain");
      put("{");
      let first = true;
      for (const key of Reflect.ownKeys(v)) {
        if (!Reflect.getOwnPropertyDescriptor(v, key).enumerable) continue; // text/plain lacks it as well
        if (typeof key !== "string") throw new TypeError("not plain");
        put(`${first ? "" : ", "}${JSON.stringify(key)}: `);
        walk(own(v, key), depth + 1);
        first = false;
      }
      put("}");
    };
    try {
      walk(value, 0);
      return text;
    } catch {
      return undefined;
    }
  }

  // represent returns the representations of a value, a Map of media types and bytes, or a promise
  // of them if the value has a method that returns one. With {raw: true} the value is an object of
  // media types and data.
  function represent(value, options) {
    const forms = new Map();
    if (options?.raw) return add(forms, value);
    const method = Object(value) === value ? value[DISPLAY] : undefined;
    if (typeof method !== "function") {
      forms.set("text/plain", plainText(value));
      const json = plainJSON(value);
      if (json !== undefined) forms.set("application/json", host.encode(json));
      return forms;
    }
    forms.set("text/plain", undefined);
    const complete = (bundle) => {
      if (bundle !== undefined && bundle !== null) add(forms, bundle);
      if (!forms.get("text/plain")) forms.set("text/plain", plainText(value));
      return forms;
    };
    const bundle = Reflect.apply(method, value, []);
    return typeof bundle?.then === "function" ? (async () => complete(await bundle))() : complete(bundle);
  }

  function add(forms, bundle) {
    for (const [name, data] of Object.entries(bundle)) {
      if (data === undefined || data === null) continue;
      const type = name.toLowerCase();
      if (type.length > MAX_TYPE || !TYPE.test(type)) throw new TypeError(`not a media type: ${host.inspect(name.slice(0, MAX_TYPE))}`);
      if (!forms.has(type) && forms.size >= MAX_TYPES) throw new RangeError(`more than ${MAX_TYPES} representations`);
      forms.set(type, content(type, data));
    }
    return forms;
  }

  // content returns the bytes of a representation. Images are base64, except those that are text.
  function content(type, data) {
    const fit = (bytes) => {
      if (bytes.length > MAX_DATA) throw new RangeError(`${type} has ${bytes.length} bytes, ${MAX_DATA} are allowed`);
      return bytes;
    };
    if (ArrayBuffer.isView(data)) return new Uint8Array(fit(viewed(data)));
    if (type.endsWith("json")) return fit(host.encode(jsonText(data)));
    if (typeof data !== "string") throw new TypeError(`${type} is ${typeof data}, not text or bytes`);
    if (type === "application/pdf" || (type.startsWith("image/") && type !== "image/svg+xml")) {
      const digits = data.replace(/\s+/g, "").replace(/={1,2}$/, "");
      if (digits.length % 4 === 1 || !/^[A-Za-z0-9+/]+$/.test(digits)) throw new TypeError(`${type} is not base64`);
      return fit(host.decode(digits));
    }
    return fit(host.encode(type === "text/plain" ? cut(data, MAX_TEXT) : data));
  }

  // A view is asked by the methods of the language: properties of its own may say anything.
  const fields = (prototype) => ["buffer", "byteOffset", "byteLength"].map((name) => Object.getOwnPropertyDescriptor(prototype, name).get);
  const OF_ARRAYS = fields(Object.getPrototypeOf(Uint8Array.prototype));
  const OF_VIEWS = fields(DataView.prototype);

  function viewed(data) {
    const [buffer, offset, length] = (data instanceof DataView ? OF_VIEWS : OF_ARRAYS).map((get) => Reflect.apply(get, data, []));
    return new Uint8Array(buffer, offset, length);
  }

  // jsonText returns the JSON text of a representation: a value, or text that is JSON already.
  function jsonText(data) {
    if (typeof data === "string") {
      try {
        JSON.parse(data);
        return data;
      } catch {
        // a value like others
      }
    }
    return JSON.stringify(data) ?? "null";
  }

  // Errors.

  // attempt calls what reads a value of the user's code, which may fail.
  function attempt(f, otherwise) {
    try {
      return f();
    } catch {
      return otherwise;
    }
  }

  // clean removes escape sequences, with which an error may quote the output of a program, and
  // other control characters.
  const clean = (s) =>
    s
      .replace(/(?:\u001b\[|\u009b)[0-?]*[ -/]*[@-~]|(?:\u001b\]|\u009d)[^\u0007\u001b\u009c]*(?:\u0007|\u001b\\|\u009c)?|\u001b[ -/]*[0-~]?/g, "")
      .replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "");

  // told returns the type and message of what was thrown. What is not like an error is described as
  // a value.
  function told(thrown) {
    const object = thrown !== null && typeof thrown === "object";
    const name = object && attempt(() => String(thrown.name || thrown.constructor?.name || "Object"), "Object");
    const alike = object && attempt(() => "message" in thrown, false);
    const message = attempt(() => (alike ? String(thrown.message) : host.inspect(thrown, { maxStringLength: MAX_MESSAGE })), "");
    return { type: object ? name.slice(0, MAX_NAME) : typeof thrown, message: cut(message, MAX_MESSAGE), alike };
  }

  // traced returns the part of a traceback that is about one error, and the line in the cell.
  function traced(thrown, cell) {
    const { type, message, alike } = told(thrown);
    const stack = alike ? attempt(() => thrown.stack) : undefined;
    if (typeof stack !== "string") {
      // An object that only resembles an error has more to say. A proxy of one is shown as an error.
      const said = alike ? attempt(() => cut(host.inspect(thrown, { maxStringLength: MAX_MESSAGE }), MAX_MESSAGE), message) : message;
      return { text: said.startsWith(`${type}: `) ? said : `${type}${said && ": "}${said}`, line: 0 };
    }
    const { before, frames, line } = attempt(() => host.stack(thrown, stack, cell), { before: "", frames: [], line: 0 });
    // Errors of Node's modules have their code only there.
    const code = attempt(() => (typeof thrown.code === "string" && stack.startsWith(`${type} [${thrown.code}]`) ? ` [${thrown.code}]` : ""), "");
    return { text: [`${before}${type}${code}${message && ": "}${message}`, ...frames].join("\n"), line };
  }

  // describe describes how a cell failed: type, message, traceback, line. place is where, if only
  // the host knows: line, and for a syntax error column (from 0) and source.
  function describe(thrown, cell, place) {
    const { type, message } = told(thrown);
    const { text, line } = traced(thrown, cell);
    const parts = [];
    if (!line && place) parts.push(pointed(cell, place));
    parts.push(text);
    let left = MAX_ERRORS;
    const more = (error, lead) => {
      if (left-- > 0) parts.push(`\n${lead}: ${traced(error, cell).text}`);
      if (left > 0) follow(error);
    };
    const follow = (error) => {
      if (Object(error) !== error) return;
      if (error.cause !== undefined) more(error.cause, "Caused by");
      if (Array.isArray(error.errors)) for (let i = 0; i < error.errors.length && left > 0; i++) more(error.errors[i], "One of");
    };
    attempt(() => follow(thrown));
    return { __proto__: null, type: clean(type), message: clean(message), traceback: `${clean(cut(parts.join(""), MAX_TRACEBACK))}\n`, line: line || place?.line || 0 };
  }

  // pointed returns the first lines of the traceback of an error without a frame: where it is, and
  // the source there.
  function pointed(cell, { line, column, source }) {
    const shown = source?.split(/\r\n|[\n\r\u2028\u2029]/)[line - 1];
    const pointer = !shown?.trim() || shown.length > MAX_SHOWN ? "" : `${shown}\n${" ".repeat(column)}^\n`;
    return `<cell ${cell}>:${line}\n${pointer}`;
  }

  // exitCode returns the exit code of a cell that ends with a code.
  const exitCode = (code) => attempt(() => Number(code) & 255, 0);

  return { __proto__: null, represent, describe, exitCode };
}
