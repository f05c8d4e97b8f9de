// What every backend with Python and files has to give a program that uses E2B's code interpreter, unchanged: code, state, errors, files.
// Each of these functions is a step; box is a sandbox.
import assert from 'node:assert/strict'
import { FileNotFoundError, TimeoutError } from 'e2b'
import { Sandbox, Template } from '@e2b/code-interpreter'
import { once } from './steps.mjs'

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

// What a sandbox is told about itself, by its object and by its ID.
export async function control(box) {
  const id = box.sandboxId
  assert.equal((await box.connect()).sandboxId, id)
  const other = await Sandbox.connect(id, { timeoutMs: 400_000 })
  assert.equal(await other.isRunning(), true)
  await box.setTimeout(500_000)
  const left = (await Sandbox.getInfo(id)).endAt - Date.now()
  assert.ok(left > 400_000 && left <= 501_000, `${left} ms are left`)
  await Sandbox.setTimeout(id, 300_000)
  assert.equal((await Sandbox.getFullInfo(id)).state, 'running')
  assert.deepEqual([await box.getMetrics(), await Sandbox.getMetrics(id)], [[], []])
  const listed = []
  for (const pages = Sandbox.list({ limit: 1 }); pages.hasNext;) listed.push(...(await pages.nextItems()).map((s) => s.sandboxId))
  assert.ok(listed.includes(id), `${id} is not in ${listed}`)
  assert.equal(new URL(`http://${box.getHost(8000)}`).hostname.startsWith(`8000-${id}.`), true)
  assert.deepEqual([await Template.exists('base'), await Template.aliasExists('base'), await Template.exists('none')], [true, true, false])
  const extra = await Sandbox.create({ timeoutMs: 60_000 })
  assert.deepEqual([await Sandbox.kill(extra.sandboxId), await Sandbox.kill(extra.sandboxId)], [true, false])
}

// A pause keeps what there is.
export async function pause(box) {
  const id = box.sandboxId
  await box.runCode('kept = "渐"')
  for (const pause of [() => box.pause(), () => Sandbox.pause(id), () => box.betaPause(), () => Sandbox.betaPause(id)]) {
    assert.deepEqual([await pause(), await pause()], [true, false])
    assert.equal((await box.getInfo()).state, 'paused')
    await assert.rejects(box.runCode('1'), TimeoutError)
    await box.connect({ timeoutMs: 300_000 })
  }
  assert.equal(text(await box.runCode('print(kept)')), '渐\n')
  await assert.rejects(box.pause({ keepMemory: false }), /501: pausing without memory: not supported by this server/)
}

export async function urls(box) {
  const form = new FormData()
  form.append('file', new Blob(['signed']), 'signed.txt')
  const put = await fetch(await box.uploadUrl('signed.txt', { useSignatureExpiration: 60_000 }), { method: 'POST', body: form })
  assert.equal(put.status, 200, await put.text())
  assert.equal(await box.files.read('signed.txt'), 'signed')
  const url = await box.downloadUrl('signed.txt', { useSignatureExpiration: 60_000 })
  assert.equal(await (await fetch(url)).text(), 'signed')
  const part = await fetch(url, { headers: { Range: 'bytes=2-3' } })
  assert.deepEqual([part.status, await part.text()], [206, 'gn'])
  assert.equal((await fetch(url.replace('signed.txt', 'a'))).status, 401)
  const late = await fetch(await box.downloadUrl('signed.txt', { useSignatureExpiration: -10 }))
  assert.deepEqual([late.status, (await late.json()).message], [401, 'signature is already expired'])
}

export async function watch(box) {
  const seen = []
  const [told, tell] = once()
  const watcher = await box.files.watchDir('.', (e) => {
    seen.push([e.name, e.type, e.entry?.path])
    if (e.name === 'seen/file' && e.type === 'write') tell()
  }, { recursive: true, includeEntry: true })
  await box.files.writeFiles([{ path: 'seen/file', data: 'x' }])
  await told
  const path = '/home/user/seen/file'
  assert.deepEqual(seen.filter(([name]) => name === 'seen/file'), [['seen/file', 'create', path], ['seen/file', 'write', path]])
  await watcher.stop()
}

// The target of a link is absolute, wherever it leads.
export async function links(box) {
  await box.runCode('import os\nos.mkdir("links")\nfor name, to in {"in": "../made.bin", "out": "/etc/passwd", "none": "nowhere"}.items(): os.symlink(to, "links/" + name)')
  assert.deepEqual((await box.files.list('links')).map((e) => [e.name, e.type, e.symlinkTarget]), [
    ['in', 'symlink', '/home/user/made.bin'], ['none', 'symlink', '/home/user/links/nowhere'], ['out', 'symlink', '/etc/passwd'],
  ])
  assert.equal((await box.files.getInfo('links/in')).symlinkTarget, '/home/user/made.bin')
  await box.files.remove('links')
}
