// Typed arrays wrap around.
const t = new Uint8Array([1, 255, 256, -1]);
console.log(Array.from(t).join(" "), new DataView(new ArrayBuffer(4)).getInt32(0));
t.length
