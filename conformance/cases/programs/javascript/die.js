console.log("before");
if (typeof process === "object" && process.abort) process.abort();
throw new Error("cannot die");
