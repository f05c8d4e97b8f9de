const closure = (() => {
  let n = 0;
  return () => ++n;
})();
