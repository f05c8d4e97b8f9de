// Not a number, infinity, two zeros.
console.log(NaN === NaN, Object.is(-0, 0), 1 / 0, -1 / 0, 0 / 0);
[NaN, -0, Infinity]
