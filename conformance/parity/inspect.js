const said = {
  "time-zone": Intl.DateTimeFormat().resolvedOptions().timeZone,
  "locale": Intl.DateTimeFormat().resolvedOptions().locale,
  "globals": Object.getOwnPropertyNames(globalThis).filter((n) => /^[A-Za-z]/.test(n)).sort().join(" "),
  "array-methods": Object.getOwnPropertyNames(Array.prototype).sort().join(" "),
  "set-methods": Object.getOwnPropertyNames(Set.prototype).sort().join(" "),
  "promise-methods": Object.getOwnPropertyNames(Promise).sort().join(" "),
  "require": typeof require,
};
if (typeof process === "object" && process && process.versions) {
  said["version"] = String(process.versions.node);
  said["engine"] = String(process.versions.v8);
}
console.log(JSON.stringify(said));
