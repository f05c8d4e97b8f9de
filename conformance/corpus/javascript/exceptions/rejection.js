// A rejected promise that is awaited.
await Promise.reject(new RangeError("too far"));
