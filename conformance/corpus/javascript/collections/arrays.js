// Methods of arrays.
const a = [3, 1, 2];
console.log([...a].sort(), a.map((x) => x * 2), a.filter((x) => x > 1), a.reduce((x, y) => x + y), a.flatMap((x) => [x, x]));
[10, 9, 1].sort()
