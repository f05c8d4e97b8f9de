// Generators and iteration.
function* count(n) {
  for (let i = 0; i < n; i++) yield i;
}
console.log([...count(4)], Array.from({ length: 3 }, (_, i) => i * i));
Math.max(...count(5))
