for (const kind of [Array, Object, String, Function, Promise, Map]) {
  for (const name of Object.getOwnPropertyNames(kind.prototype)) {
    try {
      kind.prototype[name] = null;
    } catch {}
  }
}
JSON.stringify = JSON.parse = null;
globalThis.console = undefined;
