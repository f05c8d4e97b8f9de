// What a program with E2B's SDKs cannot have from this server. Each line of output is a method and what it throws.
import { Secret, Template, Volume } from 'e2b'
import { Sandbox } from '@e2b/code-interpreter'

const box = await Sandbox.create({ timeoutMs: 60_000 })
const id = box.sandboxId
const rules = { denyOut: ['192.0.2.0/24'] }
const image = Template().fromImage('debian')

const methods = {
  'Sandbox.fork': () => Sandbox.fork(id),
  'sandbox.fork': () => box.fork(),
  'Sandbox.updateNetwork': () => Sandbox.updateNetwork(id, rules),
  'sandbox.updateNetwork': () => box.updateNetwork(rules),
  'Sandbox.createSnapshot': () => Sandbox.createSnapshot(id),
  'sandbox.createSnapshot': () => box.createSnapshot(),
  'Sandbox.listSnapshots': () => Sandbox.listSnapshots().nextItems(),
  'sandbox.listSnapshots': () => box.listSnapshots().nextItems(),
  'Sandbox.deleteSnapshot': () => Sandbox.deleteSnapshot('base'),
  'sandbox.getMcpToken': () => box.getMcpToken(),
  'Template.build': () => Template.build(image, 'mine'),
  'Template.buildInBackground': () => Template.buildInBackground(image, 'mine'),
  'Template.getBuildStatus': () => Template.getBuildStatus({ templateId: 'base', buildId: '1' }),
  'Template.assignTags': () => Template.assignTags('base:v1', 'v2'),
  'Template.removeTags': () => Template.removeTags('base', 'v1'),
  'Template.getTags': () => Template.getTags('base'),
  'Volume.create': () => Volume.create('data'),
  'Volume.connect': () => Volume.connect('data'),
  'Volume.getInfo': () => Volume.getInfo('data'),
  'Volume.list': () => Volume.list(),
  'Volume.destroy': () => Volume.destroy('data'),
  'Secret.create': () => Secret.create({ name: 'a', value: 'b' }),
  'Secret.update': () => Secret.update('a', { value: 'b' }),
  'Secret.getInfo': () => Secret.getInfo('a'),
  'Secret.list': () => Secret.list().nextItems(),
  'Secret.exists': () => Secret.exists('a'),
  'Secret.destroy': () => Secret.destroy('a'),
}
for (const [method, call] of Object.entries(methods)) {
  const e = await call().then(() => new Error('nothing'), (e) => e)
  console.log(`${method}\t${e.constructor.name}: ${e.message}`)
}

// These are options, not methods.
for (const opts of [{ mcp: { browserbase: {} } }, { iam: { tokens: { a: { audience: 'b', tokenType: 'JWT-SVID' } } } }, { volumeMounts: { '/mnt/data': 'data' } }]) {
  const e = await Sandbox.create(opts).then(() => new Error('nothing'), (e) => e)
  const want = `SandboxError: 501: ${Object.keys(opts)}: not supported by this server`
  if (`${e.constructor.name}: ${e.message}` !== want) throw new Error(`got ${e.constructor.name}: ${e.message}, want ${want}`)
}
await box.kill()
console.log('done')
process.exit(0)
