(function tick() {
  if (typeof require === "function") require("fs").appendFileSync({{name}}, "x");
  setTimeout(tick, 10);
})();
console.log("left");
