
  // It answers what the interpreter knows of names: which ones begin with something, and what one is.
  let answer = null;
  try {
    const v = value();
    if (args.op === "names") {
      const found = new Set();
      for (let o = Object(v); o !== null && found.size < 10000; o = Object.getPrototypeOf(o))
        for (const name of Object.getOwnPropertyNames(o)) if (name.startsWith(args.part) && /^[\p{L}_$][\p{L}\p{N}_$]*$/u.test(name)) found.add(name);
      answer = [...found].sort().slice(0, args.names);
    } else {
      const kind = v === null ? "null" : typeof v;
      const of = kind === "object" || kind === "function" ? v.constructor?.name : "";
      answer = `Type: ${kind}${of ? " (" + of + ")" : ""}\n`;
      answer += kind === "function" ? (args.op === "source" ? String(v) : String(v).split("\n")[0]) : "Value: " + (kind === "object" ? JSON.stringify(v) : String(v)).slice(0, 1000);
      answer = answer.slice(0, args.text);
    }
  } catch {}
  display({ [args.mime]: JSON.stringify(answer) }, { raw: true });
