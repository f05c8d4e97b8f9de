console.log({{text}});
for (;;);
