console.log("never" as string);
let x: = 1;
