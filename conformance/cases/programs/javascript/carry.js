const first = { list: [1, -0, 2n ** 70n], when: new Date(1e12), bytes: new Uint8Array([1, 2]) };
let second = new Map([["first", first], [1, undefined]]);
second.set("self", second);
var third = [first.list, new Set([second]), /a+/g];
third.error = new RangeError("bad", { cause: first });
