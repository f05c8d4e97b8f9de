// The values of package wire in JavaScript: the one source for Pyodide and for the runner.
//
// The code of a cell shares its realm with this function and may replace all that is global. So
// what is needed later is bound here, before. The runner has the function inside its own program.
export function values() {
  const { Array, ArrayBuffer, BigInt, DataView, Math, Number, Object, TextDecoder, TextEncoder, Uint8Array } = globalThis;

  // The types of values: "n", "t", "f", "i", "s", "l", "m".
  const [NULL, TRUE, FALSE, INTEGER, TEXT, LIST, MAP] = [110, 116, 102, 105, 115, 108, 109];

  const encoder = new TextEncoder();

  // pack encodes values, one after the other.
  function pack(...values) {
    let b = new Uint8Array(1 << 10);
    let view = new DataView(b.buffer);
    let at = 0;
    const room = (n) => {
      if (at + n <= b.length) return;
      const old = b;
      b = new Uint8Array(Math.max(2 * b.length, at + n));
      b.set(old);
      view = new DataView(b.buffer);
    };
    const tag = (type) => {
      room(9);
      b[at++] = type;
    };
    const head = (type, n) => {
      tag(type);
      view.setUint32(at, n);
      at += 4;
    };
    const put = (v) => {
      if (typeof v === "string") v = encoder.encode(v);
      if (v === null || v === undefined) tag(NULL);
      else if (typeof v === "boolean") tag(v ? TRUE : FALSE);
      else if (typeof v === "number" || typeof v === "bigint") {
        tag(INTEGER);
        view.setBigInt64(at, typeof v === "bigint" ? v : BigInt(Number.isFinite(v) ? Math.trunc(v) : 0));
        at += 8;
      } else if (ArrayBuffer.isView(v)) {
        head(TEXT, v.length);
        room(v.length);
        b.set(v, at);
        at += v.length;
      } else if (Array.isArray(v)) {
        head(LIST, v.length);
        for (let i = 0; i < v.length; i++) put(v[i]);
      } else {
        const keys = Object.keys(v);
        head(MAP, keys.length);
        for (let i = 0; i < keys.length; i++) {
          put(keys[i]);
          put(v[keys[i]]);
        }
      }
    };
    for (let i = 0; i < values.length; i++) put(values[i]);
    return b.subarray(0, at);
  }

  // unpack decodes a request of the Go program, which is trusted. What is called data stays bytes,
  // all else is text, and an integer is a BigInt where a number could not hold it.
  function unpack(payload) {
    const view = new DataView(payload.buffer, payload.byteOffset);
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    let at = 0;
    const count = () => view.getUint32((at += 4) - 4);
    const get = (raw, depth) => {
      switch (payload[at++]) {
        case TRUE:
          return true;
        case FALSE:
          return false;
        case INTEGER: {
          const v = view.getBigInt64((at += 8) - 8);
          return Number.isSafeInteger(Number(v)) ? Number(v) : v;
        }
        case TEXT: {
          const n = count();
          const b = payload.subarray(at, (at += n));
          return raw ? b : decoder.decode(b);
        }
        case LIST:
          return Array.from({ length: count() }, () => get(false, depth + 1));
        case MAP: {
          const m = { __proto__: null };
          for (let n = count(); n > 0; n--) {
            const key = get(false, depth + 1);
            m[key] = get(depth === 0 && key === "data", depth + 1);
          }
          return m;
        }
        default:
          return null;
      }
    };
    return get(false, 0);
  }

  return { __proto__: null, pack, unpack };
}
