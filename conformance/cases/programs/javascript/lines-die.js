for (let i = 1; i <= {{count}}; i++) console.log("line " + i);
if (typeof process === "object" && process.abort) process.abort();
throw new Error("cannot die");
