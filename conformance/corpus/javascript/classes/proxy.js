// A proxy answers for everything.
const p = new Proxy({}, { get: (_, k) => String(k) + "!" });
console.log(p.hello, p["x y"]);
