// What was made before an exception is there.
var a = 1;
null.x;
// %%
console.log(a);
