console.log({{text}});
var found = /^(a+)+$/.test("a".repeat(64) + "b");
