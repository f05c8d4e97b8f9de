// The value is that of the last expression.
1;
2;
// %%
const z = 3;
// %%
"text"
