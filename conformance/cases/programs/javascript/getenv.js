console.log(JSON.stringify(process.env[{{name}}] ?? null));
