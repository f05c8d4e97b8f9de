(async () => {
  await null;
  await new Promise((resolve) => setTimeout(resolve, {{ms}}));
  console.log("late");
})();
await null;
console.log("left");
