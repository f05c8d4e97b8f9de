if (typeof process === "object" && process.stdout) {
  for (const chunk of {{chunks}}.split(" ")) {
    void process.stdout.write(Uint8Array.from(chunk.match(/../g), (digits) => parseInt(digits, 16)));
    console.error("x");
  }
} else {
  console.log("text only");
}
