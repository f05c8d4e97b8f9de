function allocate() {
  const held = [];
  for (let n = 8; n <= {{mib}}; n += 8) {
    held.push(new Uint8Array(8 << 20).fill(120));
    console.log("allocated " + n);
  }
}

allocate();
console.log("done");
