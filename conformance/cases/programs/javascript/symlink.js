require("fs").symlinkSync({{target}}, {{link}});
