var counter = (typeof counter === "number" ? counter : 0) + 1;
console.log(counter);
