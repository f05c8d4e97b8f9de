function recurse() {
  return recurse() + 1;
}

recurse();
