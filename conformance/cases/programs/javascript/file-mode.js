console.log((require("fs").statSync({{name}}).mode & 0o7777).toString(8));
