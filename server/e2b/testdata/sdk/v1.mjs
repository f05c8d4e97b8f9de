// A program with a version of the SDK that knows the older paths of the control plane only.
import assert from 'node:assert/strict'
import { CommandExitError, NotFoundError, Sandbox } from 'e2b-v1'
import { walk } from './steps.mjs'

let box

await walk({
  create: async () => {
    box = await Sandbox.create('base', { timeoutMs: 120_000, metadata: { generation: 'v1' }, envs: { SPEC: 'from spec' } })
    const info = await box.getInfo()
    assert.equal(info.state, 'running')
    assert.equal(info.allowInternetAccess, false) // although this version asks for it by itself
  },
  commands: async () => {
    const run = await box.commands.run('echo $SPEC; echo err >&2')
    assert.deepEqual([run.exitCode, run.stdout, run.stderr], [0, 'from spec\n', 'err\n'])
    await assert.rejects(box.commands.run('exit 3'), (e) => e instanceof CommandExitError && e.exitCode === 3)
  },
  files: async () => {
    const bytes = new Uint8Array(70_000).map((_, i) => i % 256)
    await box.files.write('a/b', bytes.buffer)
    assert.deepEqual(await box.files.read('a/b', { format: 'bytes' }), bytes)
    assert.deepEqual((await box.files.list('a')).map((e) => e.name), ['b'])
  },
  connect: async () => {
    const second = await Sandbox.connect(box.sandboxId, { timeoutMs: 300_000 })
    assert.equal((await second.commands.run('cat a/b | wc -c')).stdout.trim(), '70000')
    assert.ok((await box.getInfo()).endAt - Date.now() > 200_000)
  },
  list: async () => {
    const pages = Sandbox.list({ query: { metadata: { generation: 'v1' } } })
    assert.deepEqual((await pages.nextItems()).map((s) => s.sandboxId), [box.sandboxId])
  },
  kill: async () => {
    assert.equal(await box.kill(), true)
    await assert.rejects(Sandbox.connect(box.sandboxId), NotFoundError)
  },
})
