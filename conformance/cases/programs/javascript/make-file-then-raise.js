require("fs").writeFileSync("partial.txt", "partial");
throw new RangeError("after the file");
