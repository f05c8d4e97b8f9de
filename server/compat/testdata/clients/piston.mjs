// Runs programs with Piston's client from npm, and over its WebSocket.
import assert from 'node:assert'
import piston from 'piston-client'
import WebSocket from 'ws'

const server = process.env.FRONT_URL
const client = piston({ server })

const runtimes = await client.runtimes()
assert.ok(runtimes.some(r => r.language === 'python' && r.aliases.includes('py')), JSON.stringify(runtimes))

const hello = await client.execute('python', 'print("hello", argv[1])')
assert.equal(hello.language, 'python')
assert.equal(hello.run.stdout, 'hello 1\n') // the client gives the arguments 1, 2 and 3 by itself
assert.deepEqual([hello.run.code, hello.run.signal, hello.run.output], [0, null, 'hello 1\n'])

const failed = await client.execute({
  language: 'py', version: '3.10.0', args: [], stdin: 'a line\n',
  files: [{ name: 'main.py', content: 'eprint(readline(), read("data.txt"))\nexit(3)' }, { name: 'data.txt', content: 'ZGF0YQ==', encoding: 'base64' }],
})
assert.deepEqual([failed.run.code, failed.run.status, failed.run.stderr], [3, 'RE', 'a line data\n'])

const unknown = await client.execute({ language: 'html', version: '5.0.0', files: [{ content: '' }] })
assert.equal(unknown.message, 'html-5.0.0 runtime is unknown')

// talk returns the messages of a conversation and the code of its end. answer is what the client
// says to a message.
const talk = (init, answer = () => undefined) => new Promise((resolve, reject) => {
  const ws = new WebSocket(server.replace('http', 'ws') + '/api/v2/connect')
  const got = []
  ws.on('error', reject)
  ws.on('open', () => ws.send(JSON.stringify(init)))
  ws.on('message', data => {
    const message = JSON.parse(data)
    got.push(message)
    const say = answer(message)
    if (say !== undefined) ws.send(JSON.stringify(say))
  })
  ws.on('close', code => resolve({ got, code }))
})
const init = { type: 'init', language: 'python', version: '*', files: [{ content: 'print("name?")\nprint("hello", readline())' }] }

const asked = await talk(init, m => m.type === 'data' && m.data === 'name?\n' ? { type: 'data', stream: 'stdin', data: 'Ada\n' } : undefined)
assert.equal(asked.code, 4999)
assert.deepEqual(asked.got.map(m => m.data ?? m.type), ['runtime', 'stage', 'name?\n', 'hello Ada\n', 'exit'])
assert.deepEqual(asked.got.at(-1), { type: 'exit', stage: 'run', code: 0, signal: null })

const endless = { ...init, files: [{ content: 'print("begun")\nforever()' }] }
const stopped = await talk(endless, m => m.type === 'data' ? { type: 'signal', signal: 'SIGTERM' } : undefined)
assert.deepEqual([stopped.code, stopped.got.at(-1).signal], [4999, 'SIGTERM'])

for (const [code, say] of [[4000, init], [4004, { type: 'data', stream: 'stdout', data: '' }], [4005, { type: 'signal', signal: 'SIGWHAT' }]]) {
  const ended = await talk(endless, m => m.type === 'data' ? say : undefined)
  assert.equal(ended.code, code)
}
assert.equal((await talk({ type: 'data' })).code, 4003)
const wrong = await talk({ ...init, language: 'html' })
assert.deepEqual([wrong.code, wrong.got], [4002, [{ type: 'error', message: 'html-* runtime is unknown' }]])
console.log('done')
