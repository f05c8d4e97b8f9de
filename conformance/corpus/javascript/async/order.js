// Promises before timers.
const seen = [];
setTimeout(() => seen.push("timer"), 0);
Promise.resolve().then(() => seen.push("promise"));
seen.push("now");
await new Promise((done) => setTimeout(done, 20));
seen
