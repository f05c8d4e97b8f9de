// A second cell knows the first.
const x = 40;
let y = 1;
// %%
y += x + 1;
y
