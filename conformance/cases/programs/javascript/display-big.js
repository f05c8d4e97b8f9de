display("x".repeat({{count}}));
console.log("end");
