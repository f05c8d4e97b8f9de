// A worker in the hands of an attacker: it has all that its thread has, and writes into the shared memory whatever the code of a run names.
// TestForgedFrames puts it in the place of worker-javascript.mjs.
import { FROM_HOST as F, json, number } from "./wire.mjs";

const [WRITTEN, READ, FLIGHT, AWAKE] = [0, 1, 2, 3]; // as in ring.mjs

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
    if (Atomics.compareExchange(words, AWAKE, 0, 1) === 0) kick();
  };
  const encode = (type, id, payload = []) => {
    const b = new Uint8Array(9 + payload.length);
    const v = new DataView(b.buffer);
    v.setUint32(0, 5 + payload.length, true);
    b[4] = type;
    v.setUint32(5, id, true);
    b.set(payload, 9);
    return b;
  };
  const send = (...frame) => put(encode(...frame));
  const end = (id) => send(F.END, id, number.flagged(1, json({ exit_code: 0 })));
  const file = (id, path, size, { kind = 1, number = 1, whole = 1 } = {}) => {
    const name = new TextEncoder().encode(path);
    const b = new Uint8Array(28 + name.length);
    const v = new DataView(b.buffer);
    b[0] = kind;
    b[1] = whole;
    v.setUint32(2, number, true);
    v.setFloat64(18, size, true);
    v.setUint16(26, name.length, true);
    b.set(name, 28);
    send(F.FILE, id, b);
  };
  const data = (id, offset) => send(F.DATA, id, number.part(1, offset, new Uint8Array(1)));
  const forever = (f) => {
    for (let i = 0; ; i++) f(i);
  };

  let silent = false; // and then it must not be given the code of another run
  const attacks = {
    "no-answer-after-the-run": (id) => {
      silent = true;
      end(id);
      send(F.SYNCED, id);
    },
    good: (id) => {
      send(F.STDOUT, id, new TextEncoder().encode("good\n"));
      end(id);
      send(F.SYNCED, id);
    },
    "good-without-an-answer": (id) => {
      send(F.STDOUT, id, new TextEncoder().encode("it has the code without an answer\n"));
      end(id);
      send(F.SYNCED, id);
    },
    // of files
    "spans-backwards": (id) => {
      end(id);
      file(id, "/f", 1 << 20);
      for (let i = 1 << 20; i-- > 0; ) data(id, i);
      send(F.SYNCED, id);
    },
    "spans-byte-by-byte": (id) => {
      end(id);
      file(id, "/f", 1 << 20);
      for (let i = 0; i < 1 << 20; i++) data(id, i);
      send(F.SYNCED, id);
    },
    "spans-with-gaps": (id) => {
      end(id);
      file(id, "/f", 1 << 20);
      for (let i = 0; i < 1 << 20; i += 2) data(id, i);
      send(F.SYNCED, id);
    },
    "span-over-and-over": (id) => {
      end(id);
      file(id, "/f", 1);
      forever(() => data(id, 0));
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
    "files-before-the-end": (id) => file(id, "/f", 0),
    "nothing-after-the-end": (id) => {
      end(id);
      forever(() => Atomics.wait(words, 5, words[5], 1000));
    },
    "kicks-after-the-end": (id) => {
      end(id);
      forever(() => (kick(), Atomics.wait(words, 5, words[5], 1)));
    },
    // of values, input and the end
    "values-of-nothing": (id) => forever(() => send(F.OUTPUT, id, [1, 0, 0, 0])),
    "values-in-empty-parts": (id) => forever(() => send(F.OUTPUT, id, [0])),
    "values-broken": (id) => forever(() => send(F.OUTPUT, id, [2])),
    "values-of-nonsense": (id) => send(F.OUTPUT, id, [1, 1, 255, 255]),
    "texts-of-nothing": (id) => forever(() => send(F.STDOUT, id)),
    "texts-of-one-byte": (id) => forever(() => send(F.STDERR, id, [120])),
    "input-without-end": (id) => forever(() => send(F.WANT, id, number.u32(1))),
    "end-in-empty-parts": (id) => forever(() => send(F.END, id, [0])),
    "end-broken": (id) => forever(() => send(F.END, id, [2])),
    "end-of-nonsense": (id) => send(F.END, id, [1, 91]),
    "end-of-many-names": (id) => {
      const all = json({ exit_code: 0, changes: Array.from({ length: 1e5 }, () => ["a", 1, 1]) });
      for (let at = 0; at < all.length; at += 1 << 16) send(F.END, id, number.flagged(at + (1 << 16) < all.length ? 0 : 1, all.subarray(at, at + (1 << 16))));
    },
    "end-twice": (id) => {
      end(id);
      end(id);
    },
    // of other exchanges
    "started-twice": (id) => send(F.STARTED, id, number.u32(1)),
    "synced-at-once": (id) => send(F.SYNCED, id),
    "ready-again": () => send(F.READY, 0, json({})),
    "reply-to-a-run": (id) => send(F.REPLY, id, number.u32(0)),
    "reply-to-nobody": (id) => send(F.REPLY, id + 1000, number.u32(0)),
    "text-for-another": (id) => send(F.STDOUT, id + 1, [120]),
    "text-of-earlier": (id) => send(F.STDOUT, id - 1, [120]),
    "late": (id) => send(F.LATE, id),
    "stuck": (id) => send(F.STUCK, id),
    "type-unknown": (id) => send(200, id),
    "type-zero": (id) => send(0, id),
    "fatal": () => send(F.FATAL, 0, json({ message: "mine" })),
    "fatal-of-nonsense": () => send(F.FATAL, 0, [123]),
    // of the ring
    "length-zero": () => put(new Uint8Array(64)),
    "length-of-all": () => put(new Uint8Array(64).fill(255)),
    "half-a-frame": (id) => {
      const f = encode(F.STDOUT, id, new Uint8Array(1 << 19));
      put(f.subarray(0, 1 << 18));
      forever(() => Atomics.wait(words, 5, words[5], 1000));
    },
    "byte-by-byte": (id) => {
      for (;;) for (const b of encode(F.STDOUT, id, new Uint8Array(1 << 19))) put([b]);
    },
    "more-than-there-is": () => {
      Atomics.add(words, WRITTEN, 1 << 30);
      kick();
      forever(() => Atomics.wait(words, 5, words[5], 1000));
    },
    "read-again": (id) => {
      send(F.STDOUT, id, [120]);
      forever(() => {
        Atomics.store(words, READ, words[WRITTEN] - 1000);
        kick();
      });
    },
    "credit-without-end": (id) =>
      forever(() => {
        Atomics.store(words, FLIGHT, -(2 ** 31));
        send(F.STDOUT, id, new Uint8Array(1 << 16));
      }),
    "kicks": () => forever(() => (kick(), Atomics.wait(words, 5, words[5], 1))),
    "words-of-nonsense": (id) =>
      forever((i) => {
        for (let w = 2; w < words.length; w++) words[w] = i * 2654435761;
        send(F.STDOUT, id, [120]);
      }),
  };

  port.onmessage = ({ data: { op, id, payload } }) => {
    if (op === "ask" && !silent) {
      Atomics.store(words, 7, 1);
      kick();
    }
    if (op !== "run") return;
    const head = new DataView(payload.buffer, payload.byteOffset).getUint32(0, true);
    const code = silent ? "good-without-an-answer" : new TextDecoder().decode(payload.subarray(4 + head));
    send(F.STARTED, id, number.u32(1));
    attacks[code](id);
  };
  send(F.READY, 0, json({ version: "forged", ms: 1 }));
});
