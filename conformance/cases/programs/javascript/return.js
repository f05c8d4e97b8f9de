const kept = {{text}};
console.log("before");
if (kept) {
  try {
    return kept;
  } finally {
    console.log("finally");
  }
}
console.log("after");
