{
  const line = "x".repeat(999);
  for (;;) console.log(line);
}
