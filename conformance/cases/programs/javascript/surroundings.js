{
  const report = { offset: -60 * new Date().getTimezoneOffset() };
  if (typeof process === "object" && typeof require === "function") {
    const fs = require("fs");
    const os = require("os");
    const writable = (directory) => {
      const name = directory + "/surroundings-probe";
      try {
        fs.writeFileSync(name, "x");
        fs.unlinkSync(name);
        return true;
      } catch {
        return false;
      }
    };
    report.tz = process.env.TZ ?? null;
    report.lang = process.env.LANG ?? null;
    report.home = writable(os.homedir());
    report.temp = writable(os.tmpdir());
    report.home_dir = os.homedir();
  }
  console.log(JSON.stringify(report));
}
