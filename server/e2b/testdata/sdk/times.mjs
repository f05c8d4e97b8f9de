// How long E2B's SDK takes to get a first result from a new sandbox, and another one from the same:
// the medians, in milliseconds.
import { Sandbox } from '@e2b/code-interpreter'

const [colds, warms] = process.argv.slice(2).map(Number)

async function timed(n, f) {
  const took = []
  for (let i = 0; i < n; i++) {
    const began = performance.now()
    const after = await f()
    took.push(performance.now() - began)
    await after?.()
  }
  return took.sort((a, b) => a - b)[n >> 1]
}

async function one(box) {
  const run = await box.runCode('1 + 1')
  if (run.text !== '2') throw new Error(JSON.stringify(run))
}

const cold = await timed(colds, async () => {
  const box = await Sandbox.create({ timeoutMs: 60_000 })
  await one(box)
  return () => box.kill()
})
const box = await Sandbox.create({ timeoutMs: 60_000 })
await one(box)
const warm = await timed(warms, () => one(box))
await box.kill()
console.log(JSON.stringify({ cold, warm }))
