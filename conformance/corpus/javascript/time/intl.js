// Formats of places.
console.log(new Intl.NumberFormat("en-US").format(1234567.891), new Intl.DateTimeFormat("en-GB", { timeZone: "UTC" }).format(new Date(0)));
