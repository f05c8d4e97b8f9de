{
  const fs = require("fs");
  fs.mkdirSync("data/deep", { recursive: true });
  fs.writeFileSync("report.txt", "report\n");
  fs.writeFileSync("data/table.csv", "a,b\n1,2\n");
  fs.writeFileSync("data/deep/plot.png", Buffer.from("89504e470d0a1a0a706c6f74", "hex"));
  fs.writeFileSync("blob.bin", Uint8Array.from({ length: 256 }, (_, i) => i));
  console.log("made");
}
