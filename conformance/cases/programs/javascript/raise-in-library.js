var text = "{";
var broken = JSON.parse(text);
