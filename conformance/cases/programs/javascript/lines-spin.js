for (let i = 1; i <= {{count}}; i++) console.log("line " + i);
for (;;);
