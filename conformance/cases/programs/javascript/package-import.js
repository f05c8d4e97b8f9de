try {
  void require("ms");
  console.log("present");
} catch {
  console.log("absent");
}
