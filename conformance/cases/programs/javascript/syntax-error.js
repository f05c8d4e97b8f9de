console.log("never");
var x = = 1;
