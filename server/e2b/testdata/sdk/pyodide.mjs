// A program with E2B's code interpreter on a backend without processes: what there is works, what there is not says so.
import assert from 'node:assert/strict'
import { NotFoundError, SandboxError } from 'e2b'
import { Sandbox } from '@e2b/code-interpreter'
import * as code from './code.mjs'
import { walk } from './steps.mjs'

let box

await walk({
  create: async () => { box = await Sandbox.create({ timeoutMs: 300_000, metadata: { n: '1' }, envs: { SPEC: 'from spec' } }) },
  'run-code': () => code.runCode(box),
  results: () => code.results(box),
  state: () => code.state(box),
  errors: () => code.errors(box),
  output: () => code.output(box),
  environment: () => code.environment(box),
  timeout: () => code.timeout(box),
  files: () => code.files(box),
  reconnect: async () => {
    await box.runCode('kept = 5')
    const second = await Sandbox.connect(box.sandboxId)
    assert.equal((await second.runCode('kept')).text, '5')
  },
  control: () => code.control(box),
  pause: () => code.pause(box),
  urls: () => code.urls(box),
  watch: () => code.watch(box),
  links: () => code.links(box),
  refusals: async () => {
    assert.deepEqual(await box.commands.list(), [])
    await assert.rejects(box.git.init('x'), /no command/)
    const forwarded = await fetch(process.env.E2B_SANDBOX_URL, { headers: { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '8000' } })
    assert.match((await forwarded.json()).message, /port is not open: this server forwards no ports/)
    await assert.rejects(box.commands.run('ls'), (e) => e instanceof SandboxError && /no command/.test(e.message))
    await assert.rejects(box.pty.create({ cols: 80, rows: 24, onData: () => {} }), (e) => e instanceof SandboxError && /no command, pty/.test(e.message))
    await assert.rejects(box.createCodeContext({ cwd: '/tmp' }), (e) => e instanceof SandboxError && /501/.test(e.message))
    for (const language of ['js', 'ts', 'bash', 'r', 'java']) {
      await assert.rejects(box.runCode('1', { language }), (e) => e instanceof NotFoundError && /^language "[a-z]+" is not in this sandbox, which has python/.test(e.message))
    }
  },
  wish: async () => {
    const wished = await Sandbox.create({ allowInternetAccess: true }) // the backend has no network
    assert.equal((await wished.getInfo()).allowInternetAccess, false)
    await wished.kill()
  },
  restart: async () => {
    const [x] = await box.listCodeContexts()
    await box.restartCodeContext(x)
    assert.equal((await box.runCode('kept')).error.name, 'NameError')
  },
  kill: async () => {
    assert.equal(await box.kill(), true)
    assert.equal(await box.isRunning(), false)
    await assert.rejects(Sandbox.connect(box.sandboxId), NotFoundError)
  },
})
