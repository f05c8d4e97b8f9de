// Length is in code units, walking in code points.
const s = "Zoë 👋";
console.log(s.length, [...s].length, s.toUpperCase(), s.codePointAt(4).toString(16));
"é".normalize("NFD").length
