setTimeout(() => {
  throw new Error("late error");
}, {{ms}});
console.log("left");
