for (const kind of [
  "Text/HTML",
  "text/html; charset=utf-8",
  "",
  "no-slash",
  "a/" + "b".repeat(10000),
  "text/plain\ntext/html",
  "text/x-fine",
]) {
  try {
    display({ [Symbol.for("Jupyter.display")]: () => ({ [kind]: "odd" }) });
  } catch {}
}
console.log("end");
