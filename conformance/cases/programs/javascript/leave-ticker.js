void setInterval(() => require("fs").appendFileSync({{name}}, "x"), 10);
console.log("left");
