(() => {
  const ports = new Set();
  for (const name of ["/proc/net/tcp", "/proc/net/tcp6"]) {
    if (!require("fs").existsSync(name)) continue;
    for (const line of require("fs").readFileSync(name, "utf8").trim().split("\n").slice(1)) {
      const row = line.trim().split(/\s+/);
      if (row[3] === "0A") ports.add(parseInt(row[1].split(":").pop(), 16));
    }
  }
  console.log(...[...ports].sort((a, b) => a - b));
})();
