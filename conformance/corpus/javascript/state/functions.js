// Functions and classes stay.
function twice(f, x) {
  return f(f(x));
}
class P {
  v = 3;
}
// %%
console.log(twice((x) => x + 1, 0), new P().v);
