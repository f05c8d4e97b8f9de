// The first of several, and all that settled.
const later = (v, ms) => new Promise((done) => setTimeout(done, ms, v));
console.log(await Promise.race([later("slow", 500), later("fast", 5)]));
(await Promise.allSettled([1, Promise.reject(2)])).map((r) => r.status)
