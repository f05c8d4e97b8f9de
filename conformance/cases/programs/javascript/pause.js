console.log("begin");
await new Promise((done) => setTimeout(done, {{ms}}));
console.log("end");
