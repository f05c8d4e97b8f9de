var x = 1;
console.log("before");
throw new RangeError({{message}});
