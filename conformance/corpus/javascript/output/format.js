// Placeholders.
console.log("%s is %d years", "Ann", 5);
