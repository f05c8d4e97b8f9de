{
  let text = "";
  console.log("name?");
  if (typeof process === "object" && process.stdin) {
    for await (const chunk of process.stdin) {
      text += chunk;
      if (text.includes("\n")) break;
    }
  }
  console.log("hello " + (text.split("\n")[0] || "nobody"));
}
