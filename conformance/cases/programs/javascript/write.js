if (typeof process === "object" && process.stdout) {
  void process.stdout.write({{text}});
} else {
  console.log({{text}});
}
