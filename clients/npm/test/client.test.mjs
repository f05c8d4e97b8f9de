// These tests run against a real server: EXECBROKER_URL and EXECBROKER_KEY say which.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client, ExecbrokerError, bytesOf, packed, textOf } from "execbroker";

const client = new Client({ url: process.env.EXECBROKER_URL + "/", key: process.env.EXECBROKER_KEY });
let session;
before(async () => {
  session = await client.createSession({ languages: ["python"] });
});
after(() => session.remove());

test("run", async () => {
  const result = await client.run({
    code: "print(open('in.bin', 'rb').read(), file=__import__('sys').stderr)\nopen('out.bin', 'wb').write(b'\\xff')\n6 * 7",
    language: "python",
    files: [{ name: "in.bin", content: packed(new Uint8Array([0, 255])) }],
    artifacts: { contents: true },
  });
  assert.equal(result.status, "ok");
  assert.equal(textOf(result.stderr), "b'\\x00\\xff'\n");
  assert.equal(textOf(result.outputs[0].data["text/plain"]), "42");
  assert.deepEqual(bytesOf(result.artifacts[0].data), new Uint8Array([255]));
});

test("what code does is a result", async () => {
  const result = await session.run({ code: "1/0" });
  assert.equal(result.status, "failed");
  assert.equal(result.exception.type, "ZeroDivisionError");
});

test("state", async () => {
  await session.run({ code: "x = 41" });
  assert.equal(textOf((await session.run({ code: "print(x + 1)" })).stdout), "42\n");
  await session.reset();
  assert.equal((await session.run({ code: "x" })).exception.type, "NameError");
  assert.ok((await client.sessions()).some((s) => s.id === session.id));
  assert.deepEqual((await client.session(session.id).info()).languages, ["python"]);
});

test("files", async () => {
  const bytes = Uint8Array.from({ length: 70000 }, (_, i) => i);
  assert.equal((await session.files.write("d/ä #?.bin", bytes)).size, bytes.length);
  assert.deepEqual(await session.files.read("d/ä #?.bin"), bytes);
  await session.files.write("d/t.txt", "text");
  assert.deepEqual((await session.files.list("d")).files.map((f) => f.name).sort(), ["t.txt", "ä #?.bin"]);
  assert.equal(textOf((await session.run({ code: "print(open('d/t.txt').read())" })).stdout), "text\n");
  await session.files.remove("d/t.txt");
  await assert.rejects(session.files.read("d/t.txt"), (e) => e instanceof ExecbrokerError && e.status === 404 && e.ran === "no");
});

test("events", async () => {
  const run = session.stream({ code: "print('a')\nimport sys\nprint('ü', file=sys.stderr)\n{'k': 1}" });
  const kinds = [];
  let out = "";
  for await (const event of run) {
    kinds.push(event.kind);
    if (event.kind === "stdout" || event.kind === "stderr") {
      out += textOf(event.data);
    }
  }
  assert.deepEqual([kinds[0], kinds.at(-1), out], ["started", "output", "a\nü\n"]);
  assert.equal((await run.result).status, "ok");
  assert.throws(() => run[Symbol.asyncIterator](), TypeError);
});

test("a result without events", async () => {
  assert.equal(textOf((await client.stream({ code: "print(1)" }).result).stdout), "1\n");
});

test("large output arrives whole", async () => {
  let n = 0;
  const run = session.stream({ code: "for _ in range(50): print('é' * 4000)" });
  for await (const e of run) {
    n += e.kind === "stdout" ? textOf(e.data).replaceAll("\n", "").length : 0;
  }
  assert.equal(n, 200000);
});

test("input", async () => {
  const run = session.stream({ id: "typed", input: true, code: "print('hello ' + input())\nimport sys\nprint(len(sys.stdin.read()))" });
  const done = run.result;
  await started(() => run.send("wor"));
  await run.send("ld\nrest", { end: true });
  assert.equal(textOf((await done).stdout), "hello world\n4\n");
  const other = session.stream({ code: "1" });
  await assert.rejects(other.send("x"), TypeError);
  assert.equal((await other.result).status, "ok");
});

// The run may not have begun when its first input is sent.
async function started(send) {
  for (;;) {
    try {
      return await send();
    } catch (e) {
      if (!(e instanceof ExecbrokerError) || e.status !== 404) {
        throw e;
      }
    }
  }
}

// The server may not have stopped the code yet.
async function free(call) {
  for (;;) {
    try {
      return await call();
    } catch (e) {
      if (e.kind !== "busy") {
        throw e;
      }
    }
  }
}

test("stop", async () => {
  for (const how of ["stop", "signal", "leave"]) {
    const abort = new AbortController();
    const run = session.stream({ code: "y = 1\nprint('here', flush=True)\nwhile True: pass", timeout_seconds: 60 }, { signal: abort.signal });
    const loop = (async () => {
      for await (const e of run) {
        if (e.kind === "stdout") {
          if (how === "leave") {
            break;
          }
          how === "stop" ? run.stop() : abort.abort();
        }
      }
    })();
    if (how === "leave") {
      await loop;
    } else {
      await assert.rejects(loop, { name: "AbortError" });
    }
    await assert.rejects(run.result, { name: "AbortError" });
    assert.equal((await free(() => session.run({ code: "1" }))).status, "ok", how);
  }
});

test("conversation", async () => {
  const c = client.conversation("chat 7/ä");
  const where = { languages: ["python"] };
  const first = await c.run({ id: "m1", code: "x = 41", session: where });
  assert.equal(first.conversation.fresh, true);
  await assert.rejects(c.run({ id: "m1", code: "x = 41", session: where }), (e) => e.status === 409 && e.kind === "repeated");
  assert.equal(textOf((await c.stream({ code: "print(x + 1)", session: where }).result).stdout), "42\n");
  assert.equal((await c.info()).key, "chat 7/ä");
  await c.remove();
});

test("errors", async () => {
  const other = new Client({ url: process.env.EXECBROKER_URL, key: "wrong-key-0123456789" });
  for (const call of [() => other.capabilities(), () => other.stream({ code: "1" }).result]) {
    await assert.rejects(call(), (e) => e instanceof ExecbrokerError && e.status === 401 && e.kind === "unauthorized" && e.ran === "no" && e.problem.request_id !== "");
  }
  await assert.rejects(client.run({ code: "1", command: ["x"] }), (e) => e.status === 400 && e.kind === "invalid");
  assert.ok((await client.capabilities()).backend);
  assert.ok((await client.stats()).sessions >= 1);
});

test("a stream that is cut off is an error", async () => {
  const cut = new Client({
    key: "k",
    fetch: async () => new Response('event: started\r\ndata: {"kind":"started","seq":0}\r\n\r\n: alive\n\nevent: stdout\ndata: {"kind":"stdout","seq":1,"data":"a"}\n\nevent: do'),
  });
  const run = cut.stream({ code: "1" });
  const kinds = [];
  await assert.rejects(
    (async () => {
      for await (const e of run) kinds.push(e.kind);
    })(),
    (e) => e instanceof ExecbrokerError && e.ran === "maybe",
  );
  assert.deepEqual(kinds, ["started", "stdout"]);
});
