setTimeout(() => console.log("late"), {{ms}});
console.log("left");
