// A chat: what the user says, what the model answers, and what its code does. How text, values and
// files are shown is the business of the modules of the server's page.
import {fetchFile, stream, upload} from "/page/js/api.js"
import {bytes, h, put, say} from "/page/js/dom.js"
import {Output} from "/page/js/output.js"
import {preview} from "/page/js/preview.js"
import {formatted} from "./format.js"

const [log, form, text, file, send, chosen, shown] = ["log", "form", "text", "file", "send", "chosen", "preview"].map(id => document.getElementById(id))

// A reload of this tab shows the conversation again. The model remembers it at the server.
const kept = JSON.parse(sessionStorage.getItem("chat") || "null") || {id: crypto.randomUUID(), events: []}
const path = "/chat/" + kept.id
const pathOf = name => path + "/files/" + name.split("/").map(encodeURIComponent).join("/")

let ended = false

function keep() {
  if (ended) return // the user begins another conversation
  try {
    sessionStorage.setItem("chat", JSON.stringify(kept))
  } catch { // there is more than a browser keeps: forget the oldest quarter
    if (kept.events.splice(0, Math.ceil(kept.events.length / 4)).length) keep()
  }
}

// leave keeps an answer that the user did not wait for as one that was stopped.
function leave() {
  if (running) kept.events.push(["problem", {text: "Stopped", quiet: true}])
  keep()
}

let output, answer = "", running = null

// finish formats the answer that has been streamed as text. Plain sentences stay as they are.
function finish() {
  if (formatted(answer)) {
    output.last.element.remove()
    output.value({data: {"text/markdown": answer}})
  }
  if (answer) say(answer)
  answer = ""
}

const kinds = {
  user(e) {
    log.append(h("p", {class: "user"}, e.text, e.files.length ? h("span", {class: "note"}, "\nWith " + e.files.join(", ")) : null))
    output = new Output()
    log.append(output.element)
    scrollTo(0, document.body.scrollHeight)
  },
  text(e) {
    answer += e.text
    output.text("answer", e.text)
  },
  code(e) {
    if (e.try > 1) output.note("quiet", "Attempt " + e.try)
    output.last = null
    output.text("code", e.text)
  },
  stdout: e => output.text("stdout", e.data),
  stderr: e => output.text("stderr", e.data),
  value: e => output.value(e.output),
  result(e) {
    if (e.error) output.exception({traceback: e.error})
    if (e.files) output.note("files", "Made ", e.files.map((name, i) => [i ? ", " : "", h("button", {type: "button", class: "link", onclick: () => open(name)}, name)]).flat())
  },
  problem: e => output.note(e.quiet ? "quiet" : "error", e.text),
}

function show(kind, e) {
  if (kind !== "text") finish()
  kinds[kind]?.(e)
}

function add(kind, e) {
  kept.events.push([kind, e])
  show(kind, e)
}

async function open(name) {
  try {
    put(shown, await preview(name, await fetchFile(pathOf(name)), () => { shown.hidden = true }))
    shown.hidden = false
    shown.scrollIntoView({block: "nearest"})
  } catch (err) {
    add("problem", {text: err.message})
  }
}

form.addEventListener("submit", async event => {
  event.preventDefault()
  if (running) return running.abort()
  const said = text.value, files = [...file.files]
  if (!said.trim()) return
  running = new AbortController()
  send.textContent = "Stop"
  send.className = "stop"
  add("user", {text: said, files: files.map(f => `${f.name} (${bytes(f.size)})`)})
  text.value = file.value = ""
  put(chosen)
  try {
    for (const f of files) await upload("PUT", pathOf(f.name), f)
    await stream(path, {text: said}, add, running.signal)
  } catch (err) {
    add("problem", running.signal.aborted ? {text: "Stopped", quiet: true} : {text: err.message})
  }
  finish()
  keep()
  running = null
  send.textContent = "Send"
  send.className = "primary"
})
file.addEventListener("change", () => put(chosen, file.files.length ? "With " + [...file.files].map(f => f.name).join(", ") : ""))
document.getElementById("fresh").addEventListener("click", () => {
  ended = true // an answer that is stopped by the reload is not kept either
  sessionStorage.removeItem("chat")
  location.reload()
})
addEventListener("pagehide", leave)

// The end stays in sight, unless the user has scrolled away from it.
let height = 0
history.scrollRestoration = "manual"
new ResizeObserver(() => {
  if (innerHeight + scrollY > height - 40) scrollTo(0, document.body.scrollHeight)
  height = document.body.scrollHeight
}).observe(document.body)

for (const [kind, e] of kept.events) show(kind, e)
finish()
text.focus()
