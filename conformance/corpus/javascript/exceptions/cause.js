// A cause.
try {
  throw new Error("outer", { cause: new TypeError("inner") });
} catch (e) {
  console.log(e.message, e.cause.message);
}
