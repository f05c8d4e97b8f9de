// The worker of a session with JavaScript.
import { listen } from "./serve.mjs";
import { Interpreter } from "./javascript.mjs";

listen((sender, assets, options) => Interpreter.start(sender, assets, options));
