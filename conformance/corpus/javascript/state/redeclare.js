// Names can be declared anew.
const x = 1;
// %%
const x = 2;
x
