var unfinished = "{";
var broken = JSON.parse(unfinished);
