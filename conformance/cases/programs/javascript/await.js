await new Promise((done) => setTimeout(done, 10));
console.log("awaited");
