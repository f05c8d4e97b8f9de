const kept = {{value}};

function recallKept() {
  return kept;
}
