// A worker in the hands of an attacker: it has all that its thread has, and writes into the shared memory whatever the code of a run names.
// TestForgedFrames puts it in the place of worker-javascript.mjs.
import { CHANNEL, credit, END, header, HEADER, MORE, pack, TYPE } from "./wire.mjs";

const [WRITTEN, READ, CONFIRMED, STATE] = [0, 1, 2, 3]; // as in ring.mjs

addEventListener("message", (e) => {
  const [port] = e.ports;
  const words = new Int32Array(e.data.shared.words);
  const ring = new Uint8Array(e.data.shared.ring);
  const kick = () => port.postMessage(null);

  // put writes bytes as soon as there is room.
  const put = (data) => {
    for (let at = 0; at < data.length; ) {
      const free = ring.length - ((words[WRITTEN] - Atomics.load(words, READ)) >>> 0);
      if (free <= 0) {
        kick();
        Atomics.wait(words, READ, words[READ], 20);
        continue;
      }
      const n = Math.min(free, data.length - at);
      for (let i = 0; i < n; i++) ring[(words[WRITTEN] + i) & (ring.length - 1)] = data[at + i];
      Atomics.add(words, WRITTEN, n);
      at += n;
    }
    if (Atomics.compareExchange(words, STATE, 0, 1) === 0) kick();
  };
  const encode = (type, id, payload = [], channel = 0, flags = 0) => {
    const b = new Uint8Array(HEADER + payload.length);
    header(new DataView(b.buffer), 0, type, id, payload.length, channel, flags);
    b.set(payload, HEADER);
    return b;
  };
  const send = (...frame) => put(encode(...frame));
  const names = (id, payload, flags) => send(TYPE.DATA, id, payload, CHANNEL.ENTRIES, flags);
  const end = (id) => names(id, [], END);
  const done = (id) => send(TYPE.DONE, id, pack({ exit: 0 }));
  const file = (id, path, size, { kind = 1, number = 1, whole = true, from = 0 } = {}) =>
    names(id, pack({ path, kind, id: number, whole, mode: 0, mtime: 0, size, target: "", from }));
  const data = (id) => send(TYPE.DATA, id, new Uint8Array(1), CHANNEL.CONTENTS);
  const text = (id, payload, channel = CHANNEL.STDOUT) => send(TYPE.DATA, id, payload, channel);
  const forever = (f) => {
    for (let i = 0; ; i++) f(i);
  };

  let silent = false; // and then it must not be given the code of another run
  const attacks = {
    "no-answer-after-the-run": (id) => {
      silent = true;
      end(id);
      done(id);
    },
    good: (id) => {
      text(id, new TextEncoder().encode("good\n"));
      end(id);
      done(id);
    },
    "good-without-an-answer": (id) => {
      text(id, new TextEncoder().encode("it has the code without an answer\n"));
      end(id);
      done(id);
    },
    // of files
    "spans-backwards": (id) => {
      end(id);
      for (let i = 1 << 20; i-- > 0; ) {
        file(id, "/f", 1 << 20, { whole: i === (1 << 20) - 1, from: i });
        data(id);
      }
      done(id);
    },
    "spans-byte-by-byte": (id) => {
      end(id);
      file(id, "/f", 1 << 20);
      for (let i = 0; i < 1 << 20; i++) data(id);
      done(id);
    },
    "spans-with-gaps": (id) => {
      end(id);
      file(id, "/f", 1 << 20, { from: 1 });
      for (let i = 0; i < 1 << 20; i += 2) data(id);
      done(id);
    },
    "span-over-and-over": (id) => {
      end(id);
      file(id, "/f", 1);
      forever(() => data(id));
    },
    "file-over-and-over": (id) => {
      end(id);
      forever(() => file(id, "/f", 0));
    },
    "files-without-end": (id) => {
      end(id);
      forever((i) => file(id, `/f${i}`, 0, { number: i }));
    },
    "directories-without-end": (id) => {
      end(id);
      forever((i) => file(id, `/d${i}`, 0, { kind: 2, number: i }));
    },
    "gone-without-end": (id) => {
      end(id);
      forever((i) => file(id, `/g${i}`, 0, { kind: 4 }));
    },
    "files-before-the-end": (id) => {
      file(id, "/f", 1);
      data(id);
    },
    "files-among-the-names": (id) => {
      file(id, "/f", 0);
      end(id);
      done(id);
    },
    "nothing-after-the-end": (id) => {
      end(id);
      forever(() => Atomics.wait(words, 5, words[5], 1000));
    },
    "kicks-after-the-end": (id) => {
      end(id);
      forever(() => (kick(), Atomics.wait(words, 5, words[5], 1)));
    },
    // of values, input and the end
    "values-of-nothing": (id) => forever(() => send(TYPE.OUTPUT, id, pack({ main: false, data: {} }))),
    "values-in-empty-parts": (id) => forever(() => send(TYPE.OUTPUT, id, [], 0, MORE)),
    "values-broken": (id) => forever(() => send(TYPE.OUTPUT, id, [], 0, END)),
    "values-of-nonsense": (id) => send(TYPE.OUTPUT, id, [109, 255, 255, 255]),
    "texts-of-nothing": (id) => forever(() => text(id, [])),
    "texts-of-one-byte": (id) => forever(() => text(id, [120], CHANNEL.STDERR)),
    "input-without-end": (id) => forever(() => send(TYPE.CREDIT, id, credit(1))),
    "names-of-nothing": (id) => forever(() => names(id, [])),
    "names-without-end": (id) => {
      const some = pack(...Array.from({ length: 1e4 }, () => ({ name: "a", size: 1, mtime: 1 })));
      forever(() => names(id, some));
    },
    "names-of-nonsense": (id) => names(id, [120], END),
    "end-in-empty-parts": (id) => {
      end(id);
      forever(() => send(TYPE.DONE, id, [], 0, MORE));
    },
    "end-broken": (id) => {
      end(id);
      forever(() => send(TYPE.DONE, id, [], 0, END));
    },
    "end-of-nonsense": (id) => {
      end(id);
      send(TYPE.DONE, id, [120]);
    },
    "end-of-many-names": (id) => {
      const some = pack(...Array.from({ length: 1e3 }, () => ({ name: "a", size: 1, mtime: 1 })));
      for (let i = 0; i < 100; i++) names(id, some);
      end(id);
    },
    "end-twice": (id) => {
      end(id);
      end(id);
    },
    // of other exchanges
    "started-twice": (id) => send(TYPE.STARTED, id, pack({ cell: 1 })),
    "synced-at-once": (id) => done(id),
    "ready-again": () => send(TYPE.HELLO, 0, pack({})),
    "reply-to-a-run": (id) => send(TYPE.DONE, id, pack({ errno: 1 })),
    "reply-to-nobody": (id) => send(TYPE.DONE, id + 1000, pack({})),
    "text-for-another": (id) => text(id + 1, [120]),
    "text-of-earlier": (id) => text(id - 1, [120]),
    "late": (id) => send(TYPE.STOP, id),
    "given-again": (id) => send(TYPE.OPEN, id),
    "stuck": (id) => send(TYPE.FAIL, id),
    "type-unknown": (id) => send(200, id),
    "type-zero": (id) => send(0, id),
    "channel-unknown": (id) => text(id, [120], 4),
    "flag-unknown": (id) => send(TYPE.DATA, id, [120], CHANNEL.STDOUT, 4),
    "stream-zero": () => text(0, [120]),
    "fatal": () => send(TYPE.BYE, 0, pack({ message: "mine" })),
    "fatal-of-nonsense": () => send(TYPE.BYE, 0, [123]),
    // of the ring
    "length-zero": () => put(new Uint8Array(64)),
    "length-of-all": () => put(new Uint8Array(64).fill(255)),
    "half-a-frame": (id) => {
      const f = encode(TYPE.DATA, id, new Uint8Array(1 << 19), CHANNEL.STDOUT);
      put(f.subarray(0, 1 << 18));
      forever(() => Atomics.wait(words, 5, words[5], 1000));
    },
    "byte-by-byte": (id) => {
      for (;;) for (const b of encode(TYPE.DATA, id, new Uint8Array(1 << 19), CHANNEL.STDOUT)) put([b]);
    },
    "more-than-there-is": () => {
      Atomics.add(words, WRITTEN, 1 << 30);
      kick();
      forever(() => Atomics.wait(words, 5, words[5], 1000));
    },
    "read-again": (id) => {
      text(id, [120]);
      forever(() => {
        Atomics.store(words, READ, words[WRITTEN] - 1000);
        kick();
      });
    },
    "credit-without-end": (id) =>
      forever(() => {
        Atomics.store(words, CONFIRMED, -(2 ** 31));
        text(id, new Uint8Array(1 << 16));
      }),
    "kicks": () => forever(() => (kick(), Atomics.wait(words, 5, words[5], 1))),
    "words-of-nonsense": (id) =>
      forever((i) => {
        for (let w = 2; w < words.length; w++) words[w] = i * 2654435761;
        text(id, [120]);
      }),
  };

  port.onmessage = ({ data: { op, id, request } }) => {
    if (op === "ask" && !silent) {
      Atomics.store(words, 7, 1);
      kick();
    }
    if (op === "call" && request.op === "begin") return send(TYPE.DONE, id, pack({}));
    if (op !== "run") return;
    const code = silent ? "good-without-an-answer" : new TextDecoder().decode(request.data);
    send(TYPE.STARTED, id, pack({ cell: 1 }));
    attacks[code](id);
  };
  send(TYPE.HELLO, 0, pack({ version: "forged", ms: 1 }));
});
