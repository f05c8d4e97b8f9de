// A name that nobody gave.
console.log(totl);
