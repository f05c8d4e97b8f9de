console.log("begin");
for (const end = Date.now() + {{ms}}; Date.now() < end; );
console.log("end");
