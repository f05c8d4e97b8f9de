// Dates are in UTC.
const d = new Date(Date.UTC(2024, 1, 29, 12));
console.log(d.toISOString(), d.getTimezoneOffset(), d.getDay());
new Date("2024-13-01").getTime()
