function inner() {
  throw new RangeError("deep");
}

function outer() {
  inner();
}

outer();
