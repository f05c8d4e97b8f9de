({
  [Symbol.for("Jupyter.display")]: () => ({
    "text/plain": "rich",
    "text/html": "<b>rich</b>",
    "image/png": "iVBORw0KGgpyaWNo",
  }),
});
