// The worker of a session with Python, and for preparing one.
import { listen } from "./serve.mjs";
import { Interpreter, prepare } from "./python.mjs";

listen((sender, assets, mode) => {
  const start = mode === "session" ? Interpreter.start : prepare;
  return start(sender, assets, mode);
});
