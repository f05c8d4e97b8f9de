// A program with E2B's SDKs on a backend with everything.
import assert from 'node:assert/strict'
import { AuthenticationError, CommandExitError, NotEnoughSpaceError, NotFoundError, Sandbox as Plain, SandboxError, TimeoutError } from 'e2b'
import { Sandbox } from '@e2b/code-interpreter'
import * as code from './code.mjs'
import { once, walk } from './steps.mjs'

const { text } = code
let box, other

await walk({
  create: async () => {
    [box, other] = await Promise.all([
      Sandbox.create({ timeoutMs: 300_000, metadata: { 'a b': 'ü&=', run: '1' }, envs: { SPEC: 'from spec' } }),
      Plain.create('base', { timeoutMs: 300_000, metadata: { run: '2' } }),
    ])
    assert.deepEqual((await box.getInfo()).metadata, { 'a b': 'ü&=', run: '1' })
  },
  'run-code': () => code.runCode(box),
  results: () => code.results(box),
  state: () => code.state(box),
  errors: () => code.errors(box),
  output: () => code.output(box),
  environment: () => code.environment(box),
  timeout: () => code.timeout(box),
  files: () => code.files(box),

  streaming: async () => {
    const [first, tell] = once()
    let over = false
    const run = box.runCode('import time, os\nprint("first", flush=True)\nwhile not os.path.exists("go"): time.sleep(0.01)\nprint("last")', { onStdout: (m) => tell(m.line) })
    run.then(() => { over = true })
    assert.equal(await first, 'first\n')
    assert.equal(over, false)
    await box.files.write('go', '') // while the code runs
    assert.equal(text(await run), 'first\nlast\n')
  },

  charts: async () => {
    const run = await box.runCode('import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.title("t")\nplt.show()\nplt.bar(["a"], [1])\nplt.gcf()', { timeoutMs: 120_000 })
    assert.equal(run.error, undefined)
    assert.ok(run.results.length >= 2, `got ${run.results.length} results`)
    for (const r of run.results.filter((r) => r.png)) {
      assert.equal(Buffer.from(r.png, 'base64').subarray(0, 8).toString('latin1'), '\x89PNG\r\n\x1a\n')
    }
    assert.ok(run.results.filter((r) => r.png).length >= 2)
    const charts = run.results.filter((r) => r.png).map((r) => r.chart)
    assert.deepEqual(charts.map((c) => [c.type, c.title]), [['line', 't'], ['bar', '']])
    assert.deepEqual(charts[0].elements, [{ label: '', points: [[0, 1], [1, 2], [2, 3]] }])
    assert.equal(charts[0].x_scale, 'linear')
    assert.deepEqual(charts[1].elements, [{ label: 'a', group: '', value: 1 }])
    const table = await box.runCode('import pandas as pd\npd.DataFrame({"a": [1, 2]})', { timeoutMs: 120_000 })
    assert.match(table.results[0].html, /<table/)
  },

  languages: async () => {
    const run = await box.runCode('const x = await Promise.resolve(20)\nconsole.log("js")\nx + 1', { language: 'js' })
    assert.equal(text(run), 'js\n')
    assert.equal(run.text, '21')
    assert.equal((await box.runCode('x', { language: 'javascript' })).text, '20')
    for (const language of ['r', 'java', 'R']) {
      const names = (e) => e instanceof NotFoundError && e.message.includes(`language "${language.toLowerCase()}"`) && /python, javascript, typescript, bash/.test(e.message)
      await assert.rejects(box.runCode('1', { language }), names)
      await assert.rejects(box.createCodeContext({ language }), names)
    }
  },

  typescript: async () => {
    const code = 'interface P { x: number }\nconst p: P = { x: 20 }\nenum Colour { Red = 4 }\np.x + Colour.Red'
    for (const language of ['ts', 'typescript']) {
      const x = await box.createCodeContext({ language, cwd: '/tmp' })
      assert.equal(x.language, 'typescript')
      assert.equal((await box.runCode(code, { context: x })).text, '24')
      assert.equal((await box.runCode('(p as P).x', { context: x })).text, '20')
      assert.equal(text(await box.runCode('console.log(process.cwd())', { context: x })), '/tmp\n')
      await box.removeCodeContext(x)
    }
    assert.equal((await box.runCode('const typed: number = 1\ntyped', { language: 'ts' })).text, '1')
    assert.equal((await box.runCode('typed', { language: 'js' })).text, '1') // which shares the interpreter
    assert.equal((await box.runCode('const broken: = 1', { language: 'ts' })).error.name, 'SyntaxError')
  },

  bash: async () => {
    const sh = (code, opts) => box.runCode(code, { language: 'bash', ...opts })
    const seen = []
    const first = await sh('echo out; echo err >&2', { onStdout: (m) => seen.push(m.line), onStderr: (m) => seen.push(m.line) })
    assert.deepEqual([text(first), first.logs.stderr.join(''), first.error], ['out\n', 'err\n', undefined])
    assert.equal(seen.sort().join(''), 'err\nout\n')

    // What is kept.
    const set = await sh(`word="it's ü"; lines=$'a\\nb  c'; list=(1 "2 3" 4); declare -A map=([k]="v w"); export OUT=seen; declare -i sum=1
greet() { echo "hello $1"; }
alias hi='echo hi'
shopt -s nullglob; set -f; readonly fixed=7
mkdir -p "/tmp/dir x"; cd "/tmp/dir x"`)
    assert.equal(set.error, undefined)
    const kept = await sh('echo "$word|$lines|${list[1]}|${#list[@]}|${map[k]}"; sh -c \'echo $OUT\'; sum+=2; echo $sum; greet you\nhi\npwd; echo *; shopt -q nullglob && echo nullglob; echo $fixed; (fixed=8) 2>/dev/null || echo readonly')
    assert.equal(text(kept), "it's ü|a\nb  c|2 3|3|v w\nseen\n3\nhello you\nhi\n/tmp/dir x\n*\nnullglob\n7\nreadonly\n")
    assert.deepEqual([kept.logs.stderr.join(''), kept.error], ['', undefined])
    assert.equal(kept.executionCount, first.executionCount + 2)
    assert.equal(text(await sh('set +f; cd - > /dev/null; pwd')), '/home/user\n'.replace('/home/user', text(await box.runCode('import os; print(os.getcwd())')).trim()))

    // How it fails, which keeps what was done before.
    const failed = await sh('after=1\nno-such-program')
    assert.deepEqual([failed.error.name, failed.error.value], ['SystemExit', '127'])
    assert.match(failed.logs.stderr.join(''), /bash: line 2: no-such-program/)
    assert.equal((await sh('left=2; exit 3')).error.value, '3')
    assert.equal((await sh('set -e; false; echo no')).error.value, '1')
    assert.equal(text(await sh('set +e; echo $after $left')), '1 2\n')
    assert.match((await sh('if then')).logs.stderr.join(''), /syntax error/)
    assert.equal(text(await sh('cat; echo "no input"')), 'no input\n')

    // Variables of a run, timeouts, much code.
    assert.equal(text(await sh('echo "$A $word"; sh -c \'echo $A\'', { envs: { A: "it's", word: 'mine' } })), "it's mine\nit's\n")
    assert.equal(text(await sh('echo "<$A>"')), '<>\n')
    await assert.rejects(sh('late=1; sleep 1000', { timeoutMs: 1000 }), TimeoutError)
    assert.match(text(await sh('echo "<$late> $after"')), /^<1?> 1\n$/) // it has a moment to keep the state
    assert.equal(text(await sh(`w=${'ü'.repeat(150_000)}\necho $\{#w}; unset w`)), '150000\n')
    await assert.rejects(sh('x'.repeat((1 << 20) + 1)), (e) => e instanceof SandboxError && /413/.test(e.message))
    assert.equal(text(await sh('set -eu; IFS=,')), '')
    assert.equal(text(await sh('echo "$A"; set +eu; unset IFS', { envs: { A: 'x y' } })), 'x y\n')

    // Contexts.
    const x = await box.createCodeContext({ language: 'bash', cwd: '/tmp' })
    assert.deepEqual([x.language, x.cwd], ['bash', '/tmp'])
    assert.equal(text(await box.runCode('pwd; mine=1; echo "<$after>"', { context: x })), '/tmp\n<>\n')
    assert.equal(text(await sh('echo "<$mine>"')), '<>\n')
    const [started, tell] = once()
    const endless = box.runCode('echo started; sleep 1000', { context: x, onStdout: tell })
    await started
    await box.restartCodeContext(x)
    assert.match((await endless).error.value, /restarted/)
    assert.equal(text(await box.runCode('pwd; echo "<$mine>"', { context: x })), '/tmp\n<>\n')
    await box.runCode('trap - EXIT; true; exit', { context: x }) // which keeps nothing
    await box.restartCodeContext(x)
    await box.removeCodeContext(x)
    await assert.rejects(box.runCode('true', { context: x }), NotFoundError)
    assert.equal((await box.commands.run('ls -A /tmp | grep -c execbroker-bash')).stdout, '1\n') // that of the language
  },

  contexts: async () => {
    const x = await box.createCodeContext({ cwd: '/tmp' })
    assert.equal(text(await box.runCode('import os\nmine = 1\nprint(os.getcwd())', { context: x })), '/tmp\n')
    assert.equal((await box.runCode('mine')).error.name, 'NameError')
    assert.ok((await box.listCodeContexts()).some((c) => c.id === x.id))
    const both = await Promise.all([box.runCode('import time; time.sleep(1)', { context: x }), box.runCode('"at once"')])
    assert.equal(both[1].text, 'at once')
    await box.restartCodeContext(x)
    const again = await box.runCode('import os\nprint(os.getcwd())\nmine', { context: x })
    assert.equal(text(again), '/tmp\n')
    assert.equal(again.error.name, 'NameError')
    await box.removeCodeContext(x)
    await assert.rejects(box.runCode('1', { context: x }), NotFoundError)
  },

  death: async () => {
    const run = await box.runCode('import os, signal\nos.kill(os.getpid(), signal.SIGKILL)')
    assert.equal(run.error.name, 'ContextRestarting')
    assert.equal((await box.runCode('6 * 7')).text, '42')
  },

  'full-disk': async () => {
    await box.commands.run('head -c 1G /dev/zero > fill; true')
    await assert.rejects(box.files.write('more', 'x'.repeat(1_000_000)), NotEnoughSpaceError)
    assert.equal(await box.files.exists('more'), false)
    await box.files.remove('fill')
    await box.files.write('more', 'x')
  },

  // E2B's error of a file that is not the user's, whichever way it is written.
  elsewhere: async () => {
    for (const write of [
      () => box.files.write('/etc/x', 'x'), () => box.files.writeFiles([{ path: '/etc/x', data: 'x' }]), () => box.files.write('/x/y', 'x', { useOctetStream: true }),
      () => box.files.makeDir('/etc/x'), () => box.files.remove('/etc/passwd'),
    ]) {
      await assert.rejects(write(), (e) => e instanceof SandboxError && /permission denied/.test(e.message))
    }
  },

  control: () => code.control(box),
  pause: () => code.pause(box),
  urls: () => code.urls(box),
  links: () => code.links(box),

  commands: async () => {
    const seen = []
    const run = await box.commands.run('echo out; echo err >&2; echo $A; pwd', { envs: { A: "it's" }, cwd: '/tmp', onStdout: (s) => seen.push(s) })
    assert.deepEqual([run.exitCode, run.stdout, run.stderr], [0, "out\nit's\n/tmp\n", 'err\n'])
    assert.equal(seen.join(''), run.stdout)
    await assert.rejects(box.commands.run('exit 3'), (e) => e instanceof CommandExitError && e.exitCode === 3)
    await assert.rejects(box.commands.run('no-such-program'), (e) => e instanceof CommandExitError && e.exitCode === 127)
    await assert.rejects(box.commands.run('sleep 1000', { timeoutMs: 1000 }), TimeoutError)
    await assert.rejects(box.commands.run('true', { user: 'root' }), (e) => e instanceof AuthenticationError && /user "root": sandboxes of this server have no root;/.test(e.message))
    let told = ''
    await assert.rejects(box.commands.run('cd /tmp && sudo apt-get install -y jq', { onStderr: (s) => { told += s } }), (e) => {
      assert.match(e.stderr, /sudo: command not found\nsudo: sandboxes of this server have no root; put what needs it into the image of the template\n$/)
      return e instanceof CommandExitError && e.exitCode === 127 && e.stderr === told
    })
    await assert.rejects(box.commands.run('true', { cwd: '/no/such/directory' }))
    while ((await box.commands.list()).length > 0); // what is out of time is being ended
  },

  'much-output': async () => {
    const run = await box.commands.run('seq 1 3000000', { timeoutMs: 120_000 })
    assert.equal(run.stdout.length, 22_888_896)
    assert.ok(run.stdout.endsWith('2999999\n3000000\n'))
  },

  background: async () => {
    const [ready, tell] = once()
    const handle = await box.commands.run('echo ready; cat; sleep 1000', { background: true, stdin: true, timeoutMs: 0, onStdout: tell })
    assert.equal(await ready, 'ready\n')
    await handle.disconnect()
    const second = await Sandbox.connect(box.sandboxId)
    assert.deepEqual((await second.commands.list()).map((p) => p.pid), [handle.pid])
    let got = ''
    const [all, heard] = once()
    const again = await second.commands.connect(handle.pid, { timeoutMs: 0, onStdout: (s) => { got += s; if (got.endsWith('ü\n')) heard() } })
    await second.commands.sendStdin(handle.pid, 'one\n')
    await again.sendStdin('zwei ü\n')
    await all
    assert.equal(got, 'one\nzwei ü\n')
    assert.equal(await again.kill(), true)
    await assert.rejects(again.wait(), CommandExitError)
    assert.equal(await box.commands.kill(handle.pid), false)
    for (const close of [(cat) => cat.closeStdin(), (cat) => box.commands.closeStdin(cat.pid)]) {
      const cat = await box.commands.run('cat; echo end', { background: true, stdin: true })
      await cat.sendStdin('x')
      await close(cat)
      assert.equal((await cat.wait()).stdout, 'xend\n')
    }
  },

  pty: async () => {
    const screen = () => {
      const s = { shown: '', look: () => {} }
      s.onData = (data) => {
        s.shown += Buffer.from(data).toString()
        s.look()
      }
      s.shows = (what) => new Promise((tell, fail) => {
        const late = setTimeout(() => fail(new Error(`${what} is not in ${JSON.stringify(s.shown)}`)), 120_000)
        s.look = () => {
          if (what.test(s.shown)) {
            clearTimeout(late)
            tell()
          }
        }
        s.look()
      })
      return s
    }
    const type = (pid, text) => box.pty.sendInput(pid, new TextEncoder().encode(text))
    const first = screen()
    const shell = await box.pty.create({ cols: 91, rows: 31, onData: first.onData, timeoutMs: 0, cwd: '/tmp', envs: { MARK: 'ü' } })
    await type(shell.pid, 'tty && stty size && pwd && echo "<$MARK>" && echo $TERM\r')
    await first.shows(/[\r\n]\/dev\/pts\/\d+\r\n31 91\r\n\/tmp\r\n<ü>\r\nxterm-256color\r\n/)
    await box.pty.resize(shell.pid, { cols: 120, rows: 40 })
    await type(shell.pid, 'stty size\r')
    await first.shows(/[\r\n]40 120\r\n/)
    await type(shell.pid, 'sh -c "echo asleep; exec sleep 1000"\r') // in the foreground before it speaks
    await first.shows(/[\r\n]asleep\r\n/)
    await type(shell.pid, '\x03')
    await type(shell.pid, 'echo $((6 * 7))\r')
    await first.shows(/[\r\n]42\r\n/)
    await assert.rejects(box.pty.resize(shell.pid, { cols: 0, rows: 40 }), SandboxError)
    await assert.rejects(box.pty.resize(shell.pid, { cols: 80, rows: 4_000_000_000 }), SandboxError)
    await assert.rejects(box.commands.sendStdin(shell.pid, 'x'), (e) => /error writing to stdin: tty assigned to process/.test(e.message))

    // Another program goes on at it.
    await shell.disconnect()
    const second = screen()
    const elsewhere = await Sandbox.connect(box.sandboxId)
    assert.deepEqual((await elsewhere.commands.list()).map((p) => [p.pid, p.cmd, p.args]), [[shell.pid, '/bin/bash', ['-i', '-l']]])
    const again = await elsewhere.pty.connect(shell.pid, { onData: second.onData, timeoutMs: 0 })
    await elsewhere.pty.sendInput(shell.pid, new TextEncoder().encode('echo again; exit 4\r'))
    await second.shows(/[\r\n]again\r\n/)
    await assert.rejects(again.wait(), (e) => e instanceof CommandExitError && e.exitCode === 4)

    const killed = await box.pty.create({ cols: 80, rows: 24, onData: () => {} })
    await type(killed.pid, 'sleep 1234 & trap "" HUP TERM\r')
    assert.equal(await box.pty.kill(killed.pid), true)
    await assert.rejects(killed.wait(), CommandExitError)
    assert.equal(await box.pty.kill(killed.pid), false)
    await assert.rejects(type(killed.pid, 'x'), NotFoundError)
    await assert.rejects(box.pty.resize(killed.pid, { cols: 80, rows: 24 }), NotFoundError)
    assert.equal((await box.commands.run('grep -lxz "123[4]" /proc/[0-9]*/cmdline 2>/dev/null || echo none')).stdout, 'none\n')
    await assert.rejects(box.pty.create({ cols: 80, rows: 24, onData: () => {}, timeoutMs: 1000 }).then((h) => h.wait()), TimeoutError)
    while ((await box.commands.list()).length > 0); // what is out of time is being ended
    const pipes = await box.commands.run('sleep 1000', { background: true })
    await assert.rejects(box.pty.resize(pipes.pid, { cols: 80, rows: 24 }), (e) => /error resizing tty: tty not assigned to process/.test(e.message))
    await assert.rejects(type(pipes.pid, 'x'), (e) => /error writing to tty: tty not assigned to process/.test(e.message))
    await pipes.kill()
  },

  reconnect: async () => {
    await box.runCode('kept = 5')
    const second = await Sandbox.connect(box.sandboxId)
    assert.equal((await second.runCode('kept')).text, '5')
    assert.equal(await second.files.read('go'), '')
  },

  git: async () => { // which is commands; the image has no such program
    await assert.rejects(box.git.init('repo'))
  },

  watch: async () => {
    await code.watch(box)
    const [told, tell] = once()
    const handle = await box.files.watchDir('/workspace', (e) => { if (e.name === 'deep/watched') tell(e) }, { recursive: true, includeEntry: true })
    await box.commands.run('mkdir /workspace/deep; touch /workspace/deep/watched')
    const { type, entry } = await told
    assert.deepEqual([type, entry.path, entry.type], ['create', '/workspace/deep/watched', 'file'])
    await handle.stop()
  },

  metadata: async () => {
    await box.files.write('said', 'x', { metadata: { author: 'ann' } })
    assert.deepEqual((await box.files.getInfo('/workspace/said')).metadata, { author: 'ann' })
    assert.deepEqual((await box.files.rename('said', 'renamed')).metadata, { author: 'ann' })
  },

  list: async () => {
    const ids = async (query, limit) => {
      const found = []
      for (const pages = Sandbox.list({ query, limit }); pages.hasNext;) {
        found.push(...(await pages.nextItems()).map((s) => s.sandboxId))
      }
      return found
    }
    assert.deepEqual(await ids({ metadata: { 'a b': 'ü&=' } }), [box.sandboxId])
    assert.deepEqual((await ids({ state: ['running'] }, 1)).sort(), [other.sandboxId, box.sandboxId].sort())
  },

  lifetime: async () => {
    await other.setTimeout(100_000)
    const left = (await other.getInfo()).endAt - Date.now()
    assert.ok(left > 0 && left <= 100_500, `${left} ms are left`)
    const ended = assert.rejects(other.commands.run('sleep 1000'), SandboxError) // with its sandbox
    await other.setTimeout(3_000)
    await ended
    assert.equal(await other.isRunning(), false)
    await assert.rejects(Plain.connect(other.sandboxId), NotFoundError)
  },

  kill: async () => {
    assert.equal(await box.kill(), true)
    assert.equal(await box.kill(), false)
    await assert.rejects(box.runCode('1'), TimeoutError)
    await assert.rejects(box.files.read('x'), TimeoutError)
  },
})
