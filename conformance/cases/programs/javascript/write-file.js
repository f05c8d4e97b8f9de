require("fs").writeFileSync({{name}}, {{text}});
