// Template texts, tagged ones too.
const tag = (parts, ...values) => parts.raw.join("|") + values.join(",");
console.log(tag`a${1}b\n${2}c`);
`sum: ${1 + 2}`
