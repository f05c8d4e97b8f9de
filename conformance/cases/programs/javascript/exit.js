console.log("before");
if (typeof process === "object" && process.exit) process.exit({{code}});
else exit({{code}});
console.log("after");
