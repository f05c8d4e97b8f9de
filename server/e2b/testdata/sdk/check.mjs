// What a program does with E2B's SDKs, with the answers that it expects. The environment says where the server is; the code is in the
// script language of the backend that the test uses. It prints one line for each step, the last of which is "done".
import assert from 'node:assert/strict'
import { AuthenticationError, CommandExitError, FileNotFoundError, InvalidArgumentError, NotFoundError, Sandbox as Plain, SandboxError, Secret, TimeoutError, Volume } from 'e2b'
import { Sandbox } from '@e2b/code-interpreter'

const steps = {}
const step = (name, f) => { steps[name] = f }
let box, other

step('create', async () => {
  box = await Sandbox.create({ timeoutMs: 120_000, metadata: { 'a b': 'ü&=', n: '1' }, envs: { SPEC: 'from spec' } })
  other = await Plain.create('base', { timeoutMs: 60_000, metadata: { n: '2' } })
  assert.equal(await box.isRunning(), true)
  const info = await box.getInfo()
  assert.deepEqual(info.metadata, { 'a b': 'ü&=', n: '1' })
  assert.equal(info.state, 'running')
})

step('run-code', async () => {
  const seen = []
  const run = await box.runCode('print("out")\neprint("err")\n6 * 7', {
    onStdout: (m) => seen.push(m.line), onStderr: (m) => seen.push(m.line), onResult: (r) => seen.push(r.text),
  })
  assert.deepEqual(seen, ['out\n', 'err\n', '42'])
  assert.equal(run.text, '42')
  assert.deepEqual(run.logs, { stdout: ['out\n'], stderr: ['err\n'] })
  assert.equal(run.error, undefined)
  const next = await box.runCode('1')
  assert.equal(next.executionCount, run.executionCount + 1)
})

step('state', async () => {
  await box.runCode('kept = "渐"')
  assert.equal((await box.runCode('print(kept)')).logs.stdout.join(''), '渐\n')
})

step('error', async () => {
  const { error } = await box.runCode('throw("ValueError", "bad")')
  assert.equal(error.name, 'ValueError')
  assert.equal(error.value, 'bad')
  assert.match(error.traceback, /ValueError/)
})

step('chart', async () => {
  const { results } = await box.runCode('figure(1)')
  assert.equal(Buffer.from(results[0].png, 'base64').toString('latin1'), '\x89PNG\r\n\x1a\nfigure 1')
})

step('environment', async () => {
  const run = await box.runCode('print(env("SPEC"), env("A"))', { envs: { A: `it's "\n\\` } })
  assert.equal(run.logs.stdout.join(''), `from spec it's "\n\\\n`)
})

step('languages', async () => {
  assert.equal((await box.runCode('print("js")', { language: 'js' })).logs.stdout.join(''), 'js\n')
  await assert.rejects(box.runCode('1', { language: 'r' }), SandboxError)
})

step('contexts', async () => {
  const x = await box.createCodeContext({ cwd: '/tmp' })
  assert.equal((await box.runCode('mine = 1\nprint(cwd())', { context: x })).logs.stdout.join(''), '/tmp\n')
  assert.equal((await box.runCode('print(recall("mine", "absent"))')).logs.stdout.join(''), 'absent\n')
  assert.ok((await box.listCodeContexts()).some((c) => c.id === x.id))
  await box.restartCodeContext(x)
  assert.equal((await box.runCode('print(recall("mine", "absent"))', { context: x })).logs.stdout.join(''), 'absent\n')
  await box.removeCodeContext(x)
  await assert.rejects(box.runCode('1', { context: x }), NotFoundError)
})

step('timeout', async () => {
  await box.runCode('kept = 1')
  await assert.rejects(box.runCode('forever()', { timeoutMs: 300 }), TimeoutError)
  assert.equal((await box.runCode('print(kept)', { timeoutMs: 60_000 })).logs.stdout.join(''), '1\n')
})

step('files', async () => {
  const bytes = new Uint8Array(70_000).map((_, i) => i % 256)
  const written = await box.files.write('dir/data.bin', bytes.buffer)
  assert.equal(written.path, '/home/user/dir/data.bin')
  assert.deepEqual(await box.files.read('dir/data.bin', { format: 'bytes' }), bytes)
  await box.files.write([{ path: 'a "ü".txt', data: 'text ü' }, { path: '/workspace/b', data: '' }])
  assert.equal(await box.files.read('a "ü".txt'), 'text ü')
  assert.equal(await box.files.read('b'), '')
  await box.files.write('octets', bytes.buffer, { useOctetStream: true, gzip: true })
  assert.deepEqual(await box.files.read('octets', { format: 'bytes' }), bytes)
  assert.deepEqual((await box.files.list('/workspace')).map((e) => [e.name, e.type]), [['a "ü".txt', 'file'], ['b', 'file'], ['dir', 'dir'], ['octets', 'file']])
  assert.equal((await box.files.getInfo('dir/data.bin')).size, bytes.length)
  assert.equal(await box.files.makeDir('new'), true)
  assert.equal(await box.files.makeDir('new'), false)
  assert.equal((await box.files.rename('b', 'new/c')).path, '/home/user/new/c')
  assert.equal(await box.files.exists('b'), false)
  await box.files.remove('new')
  assert.equal(await box.files.exists('new/c'), false)
  await assert.rejects(box.files.read('nothing'), FileNotFoundError)
  await assert.rejects(box.files.read('../../etc/passwd'))
  assert.equal((await box.runCode('print(read("/workspace/a \\"ü\\".txt"))')).logs.stdout.join(''), 'text ü\n')
})

step('watch', async () => {
  let tell
  const told = new Promise((resolve) => { tell = resolve })
  const handle = await box.files.watchDir('/workspace', (e) => tell(e))
  await box.files.write('watched', 'x')
  const { name, type } = await told
  assert.deepEqual([name, type], ['watched', 'create'])
  await handle.stop()
})

// What the SDK asks the version of a sandbox for, it has.
step('version', async () => {
  const said = { Author: 'ann', purpose: 'to test' }, kept = { author: 'ann', purpose: 'to test' }
  assert.deepEqual((await box.files.write('said/a', 'x', { metadata: said })).metadata, kept)
  assert.deepEqual((await box.files.write('said/b', 'x', { metadata: said, useOctetStream: true })).metadata, kept)
  assert.deepEqual((await box.files.list('said')).map((e) => e.metadata), [kept, kept])
  assert.deepEqual((await box.files.rename('said/a', 'said/c')).metadata, kept)
  assert.deepEqual((await box.files.getInfo('/workspace/said/c')).metadata, kept)
  assert.equal((await box.files.write('said/c', 'x')).metadata, undefined)
  assert.equal((await box.files.getInfo('said/c')).metadata, undefined)
  await assert.rejects(box.files.write('said/d', 'x', { metadata: { a: 'x'.repeat(5000) } }), InvalidArgumentError)

  let tell
  const told = new Promise((resolve) => { tell = resolve })
  const handle = await box.files.watchDir('.', (e) => { if (e.name === 'said/sub/a' && e.type === 'write') tell(e.entry) }, { recursive: true, includeEntry: true, allowNetworkMounts: true })
  await box.files.write('said/sub/a', 'four', { metadata: said })
  const { path, size, metadata } = await told
  assert.deepEqual([path, size, metadata], ['/home/user/said/sub/a', 4, kept])
  await handle.stop()

  assert.equal((await box.commands.run('print(1)', { stdin: false })).stdout, '1\n')
  const reader = await box.commands.run('print(readline())', { background: true, stdin: true })
  await box.commands.closeStdin(reader.pid)
  assert.equal((await reader.wait()).stdout, 'null\n')
  assert.equal(new URL(await box.downloadUrl('a')).searchParams.has('username'), false)
  assert.deepEqual(await box.getMetrics(), [])
  await assert.rejects(Sandbox.create({ volumeMounts: { '/mnt/data': 'data' } }), /501: volumeMounts: not supported by this server/)
  await assert.rejects(Volume.create('data'), /501: volumes: not supported by this server/)
  await assert.rejects(Secret.getInfo('a'), /501: secrets: not supported by this server/)
  await box.files.remove('said')
})

step('commands', async () => {
  const seen = []
  const run = await box.commands.run('print("out")\neprint("err")\nprint(env("A"))', { envs: { A: 'b' }, onStdout: (s) => seen.push(s) })
  assert.deepEqual([run.exitCode, run.stdout, run.stderr], [0, 'out\nb\n', 'err\n'])
  assert.equal(seen.join(''), 'out\nb\n')
  await assert.rejects(box.commands.run('exit(3)'), (e) => e instanceof CommandExitError && e.exitCode === 3)
  await assert.rejects(box.commands.run('forever()', { timeoutMs: 300 }), TimeoutError)
})

step('background', async () => {
  const handle = await box.commands.run('print("hello " + readline())\nforever()', { background: true, stdin: true, timeoutMs: 0 })
  await handle.disconnect()
  const second = await Sandbox.connect(box.sandboxId)
  assert.deepEqual((await second.commands.list()).map((p) => p.pid), [handle.pid])
  let tell
  const told = new Promise((resolve) => { tell = resolve })
  const again = await second.commands.connect(handle.pid, { onStdout: tell, timeoutMs: 0 })
  await second.commands.sendStdin(handle.pid, 'you\n')
  assert.equal(await told, 'hello you\n')
  assert.equal(await again.kill(), true)
  await assert.rejects(again.wait(), CommandExitError)
  assert.equal(await box.commands.kill(handle.pid), false)
})

step('list', async () => {
  const ids = async (query, limit) => {
    const found = []
    for (const pages = Sandbox.list({ query, limit }); pages.hasNext;) {
      found.push(...(await pages.nextItems()).map((s) => s.sandboxId))
    }
    return found
  }
  assert.deepEqual(await ids({ metadata: { 'a b': 'ü&=' } }), [box.sandboxId])
  assert.deepEqual(await ids({ state: ['running'] }, 1), [other.sandboxId, box.sandboxId])
  assert.deepEqual(await ids({ state: ['paused'] }), [])
})

step('pause', async () => {
  const paused = await Sandbox.create({ timeoutMs: 60_000, lifecycle: { onTimeout: 'pause' } })
  assert.equal((await paused.getInfo()).lifecycle.onTimeout, 'pause')
  await paused.runCode('kept = "渐"')
  assert.equal(await paused.pause(), true)
  assert.equal(await paused.pause(), false)
  assert.equal((await paused.getInfo()).state, 'paused')
  assert.equal(await paused.isRunning(), false)
  await assert.rejects(paused.runCode('1'), TimeoutError)
  const again = await Sandbox.connect(paused.sandboxId)
  assert.equal((await again.runCode('print(kept)')).logs.stdout.join(''), '渐\n')
  assert.equal((await again.getInfo()).state, 'running')
  assert.equal(await again.kill(), true)
})

step('timeouts', async () => {
  await other.setTimeout(30_000)
  const left = (await other.getInfo()).endAt - Date.now()
  assert.ok(left > 0 && left <= 31_000, `${left} ms are left`)
})

step('refusals', async () => {
  await assert.rejects(Sandbox.create({ apiKey: 'e2b_00' }), AuthenticationError)
  await assert.rejects(Sandbox.connect(box.sandboxId, { apiKey: process.env.OTHER_KEY }), NotFoundError)
  await assert.rejects(Sandbox.create('no-such-template'))
})

step('killed-in-mid-command', async () => {
  const lost = await Sandbox.create({ timeoutMs: 60_000 })
  const handle = await lost.commands.run('forever()', { background: true, timeoutMs: 0 })
  const end = assert.rejects(handle.wait(), /was killed or reached its end of life/)
  assert.equal(await lost.kill(), true)
  await end
})

step('kill', async () => {
  assert.equal(await box.kill(), true)
  assert.equal(await box.kill(), false)
  assert.equal(await box.isRunning(), false)
  await assert.rejects(box.runCode('1'), TimeoutError)
  await assert.rejects(box.files.read('x'), TimeoutError)
  assert.equal(await other.kill(), true)
})

for (const [name, f] of Object.entries(steps)) {
  try {
    await f()
  } catch (e) {
    console.log(`${name}: ${e?.stack ?? e}`)
    process.exit(1)
  }
  console.log(name)
}
console.log('done')
process.exit(0)
