// Two streams.
console.log("out", 1, true, null, undefined);
console.error("err");
console.warn("warned");
console.info("info");
