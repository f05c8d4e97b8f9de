try {
  console.log("subprocess " + require("child_process").execFileSync("sh", ["-c", "echo ok"], { encoding: "utf8" }).trim());
} catch {
  console.log("subprocess none");
}
