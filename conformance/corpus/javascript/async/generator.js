// Asynchronous loops.
async function* ticks() {
  for (let i = 0; i < 3; i++) yield i;
}
const got = [];
for await (const t of ticks()) got.push(t);
got
