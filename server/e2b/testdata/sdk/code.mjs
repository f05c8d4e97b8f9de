// What every backend with Python and files has to give a program that uses E2B's code interpreter, unchanged: code, state, errors, files.
// Each of these functions is a step; box is a sandbox.
import assert from 'node:assert/strict'
import { FileNotFoundError, TimeoutError } from 'e2b'

export const text = (run) => run.logs.stdout.join('')

export async function runCode(box) {
  const seen = []
  const run = await box.runCode('import sys\nprint("out")\nprint("err", file=sys.stderr)\n6 * 7', {
    onStdout: (m) => seen.push(m.line), onStderr: (m) => seen.push(m.line), onResult: (r) => seen.push(r.text),
  })
  assert.equal(seen.slice(0, -1).sort().join(''), 'err\nout\n') // two streams have no order
  assert.equal(seen.at(-1), '42')
  assert.equal(run.text, '42')
  assert.equal(text(run), 'out\n')
  assert.equal(run.logs.stderr.join(''), 'err\n')
  assert.equal(run.error, undefined)
  assert.equal((await box.runCode('1')).executionCount, run.executionCount + 1)
  assert.equal((await box.runCode('')).error, undefined)
}

export async function results(box) {
  const run = await box.runCode(`
class Page:
    def _repr_html_(self): return "<b>渐</b>"
    def __repr__(self): return "page"
Page()`)
  assert.equal(run.results[0].html, '<b>渐</b>')
  assert.equal(run.results[0].text, 'page')
  assert.equal(run.results[0].isMainResult, true)
  assert.equal((await box.runCode('"it\'s"')).text, "it's")
}

export async function state(box) {
  await box.runCode('kept = "渐"\ndef double(x):\n  return 2 * x')
  assert.equal(text(await box.runCode('print(double(kept))')), '渐渐\n')
}

export async function errors(box) {
  const { error, logs } = await box.runCode('print("before")\n1 / 0')
  assert.deepEqual([error.name, error.value], ['ZeroDivisionError', 'division by zero'])
  assert.match(error.traceback, /line 2/)
  assert.equal(logs.stdout.join(''), 'before\n')
  assert.equal((await box.runCode('def (')).error.name, 'SyntaxError')
  assert.equal((await box.runCode('raise SystemExit(3)')).error.name, 'SystemExit')
  assert.equal((await box.runCode('input()')).error.name, 'EOFError')
  assert.equal((await box.runCode('6 * 7')).text, '42')
}

export async function output(box) {
  const run = await box.runCode('for i in range(20000): print(i, "渐")\nprint("x" * 3_000_000)')
  const want = Array.from({ length: 20000 }, (_, i) => `${i} 渐\n`).join('') + 'x'.repeat(3_000_000) + '\n'
  assert.equal(text(run), want)
}

export async function environment(box) {
  const run = await box.runCode('import os\nprint(os.environ["SPEC"], os.environ["A"])', { envs: { A: `it's "\n\\` } })
  assert.equal(text(run), `from spec it's "\n\\\n`)
  assert.equal(text(await box.runCode('print(os.environ.get("A"))')), 'None\n')
}

export async function timeout(box) {
  await box.runCode('kept = 1')
  await assert.rejects(box.runCode('import time\nwhile True: time.sleep(0.01)', { timeoutMs: 1500 }), TimeoutError)
  assert.equal(text(await box.runCode('print(kept)', { timeoutMs: 60_000 })), '1\n')
}

export async function files(box) {
  const bytes = new Uint8Array(300_000).map((_, i) => (i * 7) % 256)
  assert.equal((await box.files.write('dir/data.bin', bytes.buffer)).path, '/home/user/dir/data.bin')
  assert.deepEqual(await box.files.read('dir/data.bin', { format: 'bytes' }), bytes)
  assert.equal(text(await box.runCode('import hashlib\ndata = open("/workspace/dir/data.bin", "rb").read()\nprint(len(data), data[255])')), `300000 ${bytes[255]}\n`)
  await box.runCode('open("made.bin", "wb").write(bytes(range(256)) * 100); None')
  assert.deepEqual(await box.files.read('made.bin', { format: 'bytes' }), new Uint8Array(25_600).map((_, i) => i % 256))
  await box.files.write([{ path: 'a "ü".txt', data: 'text ü' }, { path: '/home/user/b', data: '' }])
  assert.equal(await box.files.read('a "ü".txt'), 'text ü')
  assert.equal(await box.files.read('b'), '')
  await box.files.write('octets', bytes.buffer, { useOctetStream: true, gzip: true })
  assert.deepEqual(await box.files.read('octets', { format: 'bytes' }), bytes)
  const stream = await box.files.read('octets', { format: 'stream' })
  let n = 0
  for await (const chunk of stream) n += chunk.length
  assert.equal(n, bytes.length)
  const names = (await box.files.list('~')).map((e) => e.name)
  for (const name of ['a "ü".txt', 'b', 'dir', 'made.bin', 'octets']) assert.ok(names.includes(name), `${name} is not in ${names}`)
  assert.deepEqual((await box.files.list('/workspace/dir', { depth: 3 })).map((e) => [e.name, e.type, e.size]), [['data.bin', 'file', bytes.length]])
  assert.equal(await box.files.makeDir('new'), true)
  assert.equal(await box.files.makeDir('new'), false)
  assert.equal((await box.files.rename('b', 'new/c')).path, '/home/user/new/c')
  assert.equal(await box.files.exists('b'), false)
  await box.files.remove('new')
  assert.equal(await box.files.exists('new/c'), false)
  await assert.rejects(box.files.read('nothing'), FileNotFoundError)
  await assert.rejects(box.files.read('../../etc/passwd'))
  await assert.rejects(box.files.read('x', { user: 'root' }))
}
