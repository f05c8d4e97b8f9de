// Functions of numbers.
console.log(Math.max(), Math.hypot(3, 4), Math.sign(-3), Math.cbrt(27), Math.round(-0.5), Math.round(2.5));
Math.max(...[1, 5, 3])
