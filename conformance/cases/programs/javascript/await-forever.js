console.log({{text}});
await new Promise((done) => setTimeout(done, 3600000));
