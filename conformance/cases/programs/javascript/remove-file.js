require("fs").unlinkSync({{name}});
