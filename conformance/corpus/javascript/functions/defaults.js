// Defaults, rest, spreading.
const f = (a, b = a * 2, ...c) => [a, b, c];
console.log(f(1), f(1, 2, 3, 4));
f.length
