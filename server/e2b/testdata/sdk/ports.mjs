// A program with E2B's SDK that reaches a server in its sandbox.
import assert from 'node:assert/strict'
import http from 'node:http'
import { Sandbox } from 'e2b'
import { once, walk } from './steps.mjs'

const server = `
const http = require('http'), crypto = require('crypto')
const s = http.createServer((req, res) => res.end(JSON.stringify({ url: req.url, headers: req.headers })))
s.on('upgrade', (req, socket) => {
  const accept = crypto.createHash('sha1').update(req.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64')
  socket.write('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: ' + accept + '\\r\\n\\r\\n')
  socket.once('data', () => socket.write(Buffer.from('8103486921', 'hex'))) // a frame with the text Hi!
})
s.listen(8000, '127.0.0.1', () => console.log('listens'))
`

// ask sends a request to this machine, by the name of a sandbox.
const ask = (name, path, headers) => new Promise((resolve, reject) => {
  const at = new URL(process.env.E2B_SANDBOX_URL)
  const req = http.request({ host: at.hostname, port: at.port, path, headers: { Host: name, ...headers } }, async (res) => {
    let body = ''
    for await (const piece of res) body += piece
    resolve({ status: res.statusCode, body })
  })
  req.on('upgrade', (res, socket) => resolve({ status: res.statusCode, headers: res.headers, socket }))
  req.on('error', reject)
  req.end()
})

let box
await walk({
  create: async () => { box = await Sandbox.create({ timeoutMs: 300_000 }) },

  http: async () => {
    const [listens, tell] = once()
    await box.files.write('server.js', server)
    await box.commands.run('node server.js', { background: true, timeoutMs: 0, onStdout: tell })
    assert.equal(await listens, 'listens\n')
    const name = box.getHost(8000)
    assert.equal(name, `8000-${box.sandboxId}.boxes.test`)
    assert.ok(box.trafficAccessToken)
    const token = { 'e2b-traffic-access-token': box.trafficAccessToken }
    const got = await ask(name, '/path?q=1', { ...token, 'X-API-KEY': process.env.E2B_API_KEY })
    assert.equal(got.status, 200, got.body)
    const { url, headers } = JSON.parse(got.body)
    assert.deepEqual([url, headers.host], ['/path?q=1', name])
    assert.ok(!got.body.includes(box.trafficAccessToken) && !got.body.includes(process.env.E2B_API_KEY))
    assert.equal((await ask(name, '/', {})).status, 403)
    assert.equal((await ask(box.getHost(8001), '/', token)).status, 502)
  },

  websocket: async () => {
    const key = Buffer.from('0123456789abcdef').toString('base64')
    const open = await ask(box.getHost(8000), '/', {
      'e2b-traffic-access-token': box.trafficAccessToken, Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Key': key, 'Sec-WebSocket-Version': '13',
    })
    assert.equal(open.status, 101)
    open.socket.write(Buffer.from('818300000000686921', 'hex'))
    const [frame, tell] = once()
    open.socket.once('data', tell)
    assert.equal((await frame).toString('hex'), '8103486921')
    const [ended, end] = once()
    open.socket.once('close', end).resume()
    await box.kill()
    await ended
  },
})
