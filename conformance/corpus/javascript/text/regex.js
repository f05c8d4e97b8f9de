// Groups by name, and all matches.
const found = [..."2024-01-31 1999-12-01".matchAll(/(?<y>\d{4})-(?<m>\d\d)/g)].map((m) => ({ ...m.groups }));
console.log(JSON.stringify(found));
"aBc".replace(/[A-Z]/g, (c) => "_" + c.toLowerCase())
