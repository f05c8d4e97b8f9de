console.log(JSON.stringify(typeof process === "object" ? { ...process.env } : {}));
