// The worker of a session with JavaScript.
import { listen } from "./serve.mjs";
import { Interpreter } from "./javascript.mjs";

listen((sender) => Interpreter.start(sender));
