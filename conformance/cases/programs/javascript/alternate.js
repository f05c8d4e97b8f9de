for (let i = 1; i <= 5; i++) {
  console.log("out " + i);
  console.error("err " + i);
}
