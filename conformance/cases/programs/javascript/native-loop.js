console.log({{text}});
for (const list = Array.from({ length: 1 << 20 }, (_, i) => i); ; list.reverse()) list.sort((a, b) => a - b);
