// Order of keys, spreading, computed names.
const o = { b: 1, 2: "two", a: 3, ["c" + 1]: 4 };
console.log(Object.keys(o), { ...o, b: 9 }, Object.entries({ x: 1 }));
Object.fromEntries([["k", 1]])
