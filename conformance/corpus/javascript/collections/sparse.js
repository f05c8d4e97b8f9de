// Holes.
const a = [1, , 3];
console.log(a.length, 1 in a, a.indexOf(undefined));
