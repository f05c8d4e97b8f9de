// Runs steps one after the other and prints a line for each, the last of which is "done". It ends at the first that fails.
export async function walk(steps) {
  for (const [name, f] of Object.entries(steps)) {
    const begin = Date.now()
    try {
      await f()
    } catch (e) {
      console.log(`${name}: ${e?.stack ?? e}`)
      process.exit(1)
    }
    console.log(`${name} (${Date.now() - begin} ms)`)
  }
  console.log('done')
  process.exit(0)
}

// once returns a promise and what resolves it.
export function once() {
  let tell
  const told = new Promise((resolve) => { tell = resolve })
  return [told, tell]
}
