// The value of an awaited expression.
await new Promise((done) => setTimeout(() => done("done"), 10))
