// A cell: code, and what it did.
import {Problem, call, stream, upload} from "./api.js"
import {h, put, say, seconds} from "./dom.js"
import {editor} from "./editor.js"
import {Output} from "./output.js"

const names = {python: "Python", javascript: "JavaScript", typescript: "TypeScript"}
export const outcomes = {ok: "Done", failed: "Failed", timed_out: "Timed out", killed: "Stopped by a limit", canceled: "Stopped", lost: "Lost"}

let cells = 0 // that were made

export const languageName = l => names[l] || l

// Cell runs code in a sandbox of book: see notebook.js.
export class Cell {
  constructor(book, language, text) {
    this.book = book
    this.language = language
    this.button = h("button", {type: "button", class: "primary run", onclick: () => this.running ? this.stop() : this.run()}, "Run")
    this.meta = h("p", {class: "meta"})
    this.outputs = h("div")
    this.input = this.inputLine()
    this.edit = editor({
      text, language, label: "Code", words: () => book.words(this), changed: () => book.changed(),
      keys: {"Shift-Enter": () => (this.run(), book.next(this)), "Mod-Enter": () => this.run()},
    })
    const choice = h("select", {"aria-label": "Language", onchange: () => {
      this.language = this.edit.language = choice.value
      book.changed()
    }}, book.languages.map(l => h("option", {value: l}, languageName(l))))
    choice.value = language
    this.element = h("section", {class: "cell", "aria-label": "Cell " + ++cells},
      h("div", {class: "code"}, this.edit.element),
      h("div", {class: "bar"}, this.button, choice, this.meta,
        h("button", {type: "button", class: "quiet icon", title: "Remove this cell", "aria-label": "Remove this cell", onclick: () => book.remove(this)}, "×")),
      this.outputs, this.input)
  }

  inputLine() {
    const field = h("input", {"aria-label": "Input for the code", autocomplete: "off", placeholder: "Input for the code"})
    const send = async end => {
      const text = end ? "" : field.value + "\n"
      field.value = ""
      try {
        await upload("POST", `/v1/sessions/${this.session}/runs/${this.id}/input${end ? "?end=true" : ""}`, text)
        if (!end) this.output?.text("stdin", text)
      } catch (err) {
        this.output?.note("warning", err.message)
      }
    }
    return h("form", {class: "input", hidden: true, onsubmit: e => (e.preventDefault(), send(false))},
      field, h("button", {type: "submit"}, "Send"), h("button", {type: "button", class: "quiet", onclick: () => send(true)}, "End of input"))
  }

  async run() {
    if (this.running) return
    const code = this.edit.text
    if (!code.trim()) return
    const output = this.output = new Output()
    put(this.outputs, output.element)
    this.running = new AbortController()
    this.stopped = false
    this.button.textContent = "Stop"
    this.button.classList.add("stop")
    this.element.classList.add("busy")
    put(this.meta, "Waiting for a sandbox…")
    let timer
    try {
      const language = this.language
      this.session = (await this.book.sandboxes.get(language)).id
      if (this.stopped) throw new DOMException("", "AbortError")
      const result = await this.patient(() => stream(`/v1/sessions/${this.session}/run/stream`, {
        id: this.id = "r" + crypto.randomUUID(), language, code, input: this.book.can("stdin", language), artifacts: this.book.can("artifacts", language) ? {max_files: 50} : undefined,
        timeout_seconds: this.book.timeout,
      }, (name, e) => {
        if (name === "started") {
          const began = performance.now()
          const tick = () => put(this.meta, "Running, " + seconds((performance.now() - began) / 1000))
          timer = setInterval(tick, 500)
          tick()
          this.asks = setTimeout(() => { this.input.hidden = !this.book.can("stdin", language) }, 700)
        } else if (name === "stdout" || name === "stderr") output.text(name, e.data)
        else if (name === "output") output.value(e.output)
        else if (name === "dropped") output.note("warning", `${e.bytes} bytes of output were too fast for this page and are left out.`)
      }, this.running.signal))
      this.done(result)
    } catch (err) {
      this.failed(err)
    } finally {
      clearInterval(timer)
      clearTimeout(this.asks)
      this.input.hidden = true
      this.running = null
      this.button.textContent = "Run"
      this.button.classList.remove("stop")
      this.element.classList.remove("busy")
      this.element.dataset.runs = Number(this.element.dataset.runs || 0) + 1
      this.book.ran(this)
    }
  }

  // patient calls run again while the sandbox is busy with the end of a run that was just stopped.
  async patient(run) {
    for (let tries = 0; ; tries++) {
      try {
        return await run()
      } catch (err) {
        if (err.kind !== "busy" || err.ran !== "no" || tries >= 25 || this.stopped || performance.now() - this.book.stoppedAt > 15000) throw err
        await new Promise(resume => setTimeout(resume, 200))
      }
    }
  }

  // stop stops the run. The server keeps the variables if the backend can interrupt.
  stop() {
    this.stopped = true
    this.book.stoppedAt = performance.now()
    this.running.abort()
  }

  done(r) {
    const o = this.output
    if (r.exception) o.exception(r.exception)
    for (const n of r.notices || []) o.note("warning", n)
    if (r.status === "timed_out" || r.status === "killed") o.note("error", `The run was stopped${r.reason ? ": " + r.reason : ""}.`)
    if (r.state_lost) o.note("warning", "The variables are gone.", r.files_lost ? " The files too." : "")
    else if (r.state_fresh && r.cell > 1) o.note("warning", "This run began without the variables of earlier cells.")
    if (r.left_running?.length) o.note("quiet", "Still running: " + r.left_running.join(", "))
    if (r.artifacts?.length) o.note("files", "Made ", r.artifacts.map((a, i) => [i ? ", " : "", h("button", {type: "button", class: "link", onclick: () => this.book.open(a.name)}, a.name)]).flat())
    const why = r.origin.assigned && r.origin.assigned !== r.origin.backend ? ` instead of ${r.origin.assigned}, which could not` : ""
    const where = r.origin.backend + (r.origin.route ? ` by route ${r.origin.route}` : "") + why
    put(this.meta, h("span", {class: "status " + r.status}, outcomes[r.status] || r.status),
      [seconds(r.duration_seconds), r.queued_seconds > 0.05 ? "after " + seconds(r.queued_seconds) : "", r.usage?.cpu_seconds ? "CPU " + seconds(r.usage.cpu_seconds) : "",
        Number(r.usage?.cost) ? "cost " + r.usage.cost : "", where].filter(Boolean).map(text => h("span", {}, text)))
    this.result = r
    say("Cell: " + (outcomes[r.status] || r.status))
  }

  failed(err) {
    if (err.name === "AbortError") {
      put(this.meta, h("span", {class: "status"}, "Stopped"))
      say("Cell: stopped")
      return
    }
    put(this.meta, h("span", {class: "status failed"}, "Not run"))
    if (err.ran === "maybe" || err.ran === "yes") put(this.meta, h("span", {class: "status failed"}, "Interrupted"))
    this.output.note("error", told(err))
    if (err.kind === "not-found" || err.kind === "closed") {
      this.book.sandboxes.lost(this.language)
      this.output.note("quiet", "The sandbox has ended. The next run gets a new one.")
    }
    say("Cell: " + err.message)
  }
}

// told says what failed, in words for the reader.
export function told(err) {
  if (!(err instanceof Problem)) return String(err.message || err)
  const d = err.denied?.rule ? ` (rule ${err.denied.rule}: ${err.denied.have} of ${err.denied.limit})` : ""
  const text = err.message.charAt(0).toUpperCase() + err.message.slice(1)
  return text + d + (/[.?!]$/.test(text + d) ? "" : ".") + (err.request_id ? ` Request ${err.request_id}.` : "")
}

// install makes packages importable, and shows what that did.
export async function install(book, language, list) {
  const {id} = await book.sandboxes.get(language)
  return call("POST", `/v1/sessions/${id}/packages`, {language, names: list})
}
