// Maps and sets keep their order.
const m = new Map([["a", 1], [{}, 2]]);
console.log(m.size, [...new Set([1, 1, 2])], m.get("a"));
m.has("b")
