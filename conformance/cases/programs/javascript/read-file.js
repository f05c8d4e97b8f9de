try {
  console.log(require("fs").readFileSync({{name}}, "utf8"));
} catch {
  console.log("absent");
}
