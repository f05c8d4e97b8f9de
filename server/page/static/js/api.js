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

// stream sends JSON and calls on(name, data) for each event. It returns the result.
export async function stream(path, body, on, signal) {
  const res = await send("POST", path, JSON.stringify(body), signal, "application/json")
  const reader = res.body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ""
  for (;;) {
    const {value, done} = await reader.read()
    if (done) throw new Problem({kind: "network", message: "The connection ended before the run did."})
    const messages = (rest + value).split("\n\n")
    rest = messages.pop()
    for (const message of messages) {
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
