console.log({{text}});
for (;;) {
  try {
    for (;;);
  } catch {}
}
