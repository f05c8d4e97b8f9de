var markup = (text) => ({ [Symbol.for("Jupyter.display")]: () => ({ "text/html": text }) });
console.log("a");
display(markup("<i>1</i>"));
console.log("b");
display(markup("<i>2</i>"));
3;
