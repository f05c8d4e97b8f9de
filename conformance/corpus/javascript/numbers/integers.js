// Numbers are doubles, and big integers have no bound.
console.log(2 ** 53 + 1, 7 % -3, -7 % 3, Math.trunc(-3.5), 2n ** 100n);
0.1 + 0.2
