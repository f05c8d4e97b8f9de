// The HTTP API: see /v1/openapi.json.

// Problem is an answer that is an error of the infrastructure, not of the code.
export class Problem extends Error {
  constructor(answer) {
    super(answer.message)
    Object.assign(this, answer)
  }
}

const store = "execbroker-key"
let key = sessionStorage.getItem(store) || ""

export const known = () => key !== ""

// remember keeps the key in memory, and over reloads of this tab only if the user asks for that.
export function remember(text, reloads) {
  key = text
  if (reloads) sessionStorage.setItem(store, text)
  else sessionStorage.removeItem(store)
}

export function forget() {
  remember("", false)
}

async function send(method, path, body, signal, type) {
  const headers = {Authorization: "Bearer " + key}
  if (type) headers["Content-Type"] = type
  let res
  try {
    res = await fetch(path, {method, headers, body, signal, credentials: "omit", cache: "no-store", redirect: "error"})
  } catch (err) {
    if (signal?.aborted) throw err
    throw new Problem({kind: "network", message: "The server does not answer. Is it still running?"})
  }
  if (res.ok) return res
  let answer
  try {
    answer = await res.json()
  } catch {
    answer = {kind: "unknown", message: "The server answered with status " + res.status + "."}
  }
  throw new Problem(answer)
}

// call sends JSON and returns the JSON of the answer, if it has one.
export async function call(method, path, body, signal) {
  const res = await send(method, path, body && JSON.stringify(body), signal, body && "application/json")
  return res.status === 204 ? undefined : res.json()
}

// last sends a DELETE that outlives the page. Nobody reads its answer.
export function last(path) {
  fetch(path, {method: "DELETE", headers: {Authorization: "Bearer " + key}, credentials: "omit", keepalive: true}).catch(() => {})
}

// upload sends bytes.
export const upload = (method, path, data) => send(method, path, data, undefined, "application/octet-stream")

// fetchFile returns the bytes of a file.
export const fetchFile = async path => (await send("GET", path)).arrayBuffer()

// splitter returns a function that takes pieces of a stream and returns the messages that end in
// each, at an empty line. A message of many pieces is put together once.
export function splitter() {
  let pieces = []
  return piece => {
    if (pieces.at(-1)?.endsWith("\n")) {
      pieces.push(pieces.pop().slice(0, -1))
      piece = "\n" + piece
    }
    const ends = piece.split("\n\n"), rest = ends.pop()
    const messages = ends.map(end => {
      const message = pieces.join("") + end
      pieces = []
      return message
    })
    pieces.push(rest)
    return messages
  }
}

// stream sends JSON and calls on(name, data) for each event. It returns the result.
export async function stream(path, body, on, signal) {
  const res = await send("POST", path, JSON.stringify(body), signal, "application/json")
  const reader = res.body.pipeThrough(new TextDecoderStream()).getReader()
  const messages = splitter()
  for (;;) {
    const {value, done} = await reader.read()
    if (done) throw new Problem({kind: "network", message: "The connection ended before the run did."})
    for (const message of messages(value)) {
      const at = message.indexOf("\ndata: ")
      if (!message.startsWith("event: ") || at < 0) continue // a comment
      const name = message.slice(7, at), data = JSON.parse(message.slice(at + 7))
      if (name === "error") throw new Problem(data)
      if (name === "done") return data
      on(name, data)
    }
  }
}

// decode returns the bytes of the API's form of bytes: text, or base64.
export function decode(b) {
  if (typeof b === "string") return new TextEncoder().encode(b)
  return Uint8Array.from(atob(b.base64), c => c.charCodeAt(0))
}

// textOf returns the same as text.
export const textOf = b => typeof b === "string" ? b : new TextDecoder().decode(decode(b))

// base64Of returns the same in base64.
export function base64Of(b) {
  if (typeof b !== "string") return b.base64
  let binary = ""
  for (const c of decode(b)) binary += String.fromCharCode(c)
  return btoa(binary)
}

// pathOf returns the path of a file in a session.
export const pathOf = (session, name) => "/v1/sessions/" + session + "/files/" + name.split("/").map(encodeURIComponent).join("/")
