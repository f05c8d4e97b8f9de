// Taking apart.
const { a, b: { c = 5 } = {}, ...rest } = { a: 1, d: 2, e: 3 };
const [x, , y = 9] = [1, 2];
console.log(a, c, rest, x, y);
