// Recursion without an end is an exception, and the session lives.
const down = (n) => down(n + 1) + 1;
try {
  down(0);
} catch (e) {
  console.log(e.name);
}
// %%
console.log("alive");
