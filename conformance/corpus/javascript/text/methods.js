// Padding, trimming, splitting.
console.log("5".padStart(3, "0"), "  x ".trim() + "|", "a,b,,c".split(","), "abc".at(-1), "ab".repeat(2));
"a-b-c".replaceAll("-", "+")
