process.on("uncaughtException", (error, origin) => {
  console.log(origin, error.message);
  if (error.message === "later") setTimeout(() => console.log("goes on"), 5);
});
setTimeout(() => {
  throw new Error("later");
}, 5);
throw new Error("now");
