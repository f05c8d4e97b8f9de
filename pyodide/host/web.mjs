// What the environment of the language shares with the web, in Node's form: errors have Node's
// messages, and URLs are shown as in Node.
import { kept } from "./scrub.mjs";

const { AbortController: Controller, AbortSignal: Signal, DOMException: Exception, URL: Plain } = kept.web;
const PARTS = ["href", "origin", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "searchParams", "hash"];
const SHOWN = Symbol.for("Deno.privateCustomInspect");

for (const o of [Controller.prototype, Signal]) {
  const old = o.abort;
  const { abort } = {
    abort(reason = new Exception("This operation was aborted", "AbortError")) {
      return Reflect.apply(old, this, [reason]);
    },
  };
  Object.defineProperty(o, "abort", { value: abort });
}

// Address is the class URL.
export const Address = new Proxy(Plain, {
  construct(to, args, made) {
    try {
      return Reflect.construct(to, args, made);
    } catch (e) {
      if (!e.message.startsWith("Invalid URL")) throw e;
      const base = args[1] === undefined ? {} : { base: `${args[1]}` };
      throw Object.assign(new TypeError("Invalid URL"), { code: "ERR_INVALID_URL", input: `${args[0]}`, ...base });
    }
  },
});
Plain.prototype.constructor = Address;
Object.defineProperty(Plain.prototype, SHOWN, {
  value(inspect, options) {
    return `${this.constructor.name} ${inspect(Object.fromEntries(PARTS.map((name) => [name, this[name]])), options)}`;
  },
});
