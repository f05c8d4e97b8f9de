// Conversion by symbols.
const money = { [Symbol.toPrimitive]: (hint) => (hint === "number" ? 5 : "five") };
console.log(+money, `${money}`);
