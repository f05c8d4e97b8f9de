// await at the top.
const double = async (x) => x * 2;
console.log(await Promise.all([1, 2, 3].map(double)));
