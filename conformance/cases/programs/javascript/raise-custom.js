class OddError extends Error {
  name = "OddError";
}

throw new OddError({{message}});
