// The same code on two backends, side by side, and what differs.
import {stream} from "./api.js"
import {languageName, outcomes, told} from "./cell.js"
import {diff} from "./diff.js"
import {h, put, say, seconds} from "./dom.js"
import {editor} from "./editor.js"
import {Output} from "./output.js"
import {Sandboxes} from "./sandboxes.js"

const first = {
  python: "import platform, sys\n\nprint(platform.machine())\nprint(sys.version.split()[0])\nsum(range(10))\n",
  javascript: "console.log(process.version)\n6 * 7\n",
}

// Compare is the view of two backends.
export class Compare {
  constructor(server) {
    this.server = server
    this.languages = server.capabilities.languages.map(l => l.language)
    this.language = this.languages.includes("python") ? "python" : this.languages[0]
    this.edit = editor({text: first[this.language] || "", language: this.language, label: "Code for both backends", words: () => [], keys: {"Mod-Enter": () => this.run(), "Shift-Enter": () => this.run()}})
    const language = h("select", {"aria-label": "Language", onchange: () => { this.language = this.edit.language = language.value }}, this.languages.map(l => h("option", {value: l}, languageName(l))))
    language.value = this.language
    this.button = h("button", {type: "button", class: "primary run", onclick: () => this.running ? this.running.abort() : this.run()}, "Run on both")
    this.sides = [0, 1].map(i => this.side(i))
    this.verdict = h("div", {class: "verdict", role: "status"})
    this.element = h("div", {class: "compare"},
      h("p", {class: "where"}, "Each run gets a new sandbox, so that nothing of earlier runs differs."),
      h("section", {class: "cell", "aria-label": "Code"}, h("div", {class: "code"}, this.edit.element), h("div", {class: "bar"}, this.button, language)),
      this.verdict, h("div", {class: "two"}, this.sides.map(s => s.element)))
  }

  side(i) {
    const s = {output: null, result: null}
    s.choice = h("select", {"aria-label": i ? "Second backend" : "First backend"}, this.server.backends.map(b => h("option", {value: b}, b)))
    s.choice.value = this.server.backends[Math.min(i, this.server.backends.length - 1)]
    s.meta = h("p", {class: "meta"})
    s.place = h("div")
    s.element = h("section", {class: "cell", "aria-label": i ? "Second" : "First"}, h("div", {class: "bar"}, s.choice, s.meta), s.place)
    return s
  }

  async run() {
    if (this.running || !this.edit.text.trim()) return
    this.running = new AbortController()
    this.button.textContent = "Stop"
    put(this.verdict)
    await Promise.all(this.sides.map(s => this.on(s, this.running.signal)))
    this.running = null
    this.button.textContent = "Run on both"
    this.judge()
  }

  async on(s, signal) {
    s.result = null
    s.output = new Output()
    put(s.place, s.output.element)
    put(s.meta, "Waiting for a sandbox…")
    const boxes = new Sandboxes(s.choice.value, this.server.capabilities, this.language)
    try {
      const {id} = await boxes.get(this.language)
      const began = performance.now()
      s.result = await stream(`/v1/sessions/${id}/run/stream`, {language: this.language, code: this.edit.text}, (name, e) => {
        if (name === "started") put(s.meta, "Running…")
        else if (name === "stdout" || name === "stderr") s.output.text(name, e.data)
        else if (name === "output") s.output.value(e.output)
      }, signal)
      s.took = (performance.now() - began) / 1000
      if (s.result.exception) s.output.exception(s.result.exception)
      put(s.meta, h("span", {class: "status " + s.result.status}, outcomes[s.result.status] || s.result.status), h("span", {}, seconds(s.result.duration_seconds)), Number(s.result.usage?.cost) ? h("span", {}, "cost " + s.result.usage.cost) : null)
    } catch (err) {
      put(s.meta, h("span", {class: "status failed"}, signal.aborted ? "Stopped" : "Not run"))
      if (!signal.aborted) s.output.note("error", told(err))
    }
    await boxes.end()
  }

  judge() {
    const [a, b] = this.sides.map(s => s.result)
    if (!a || !b) return
    const parts = [["Output", text(a.stdout), text(b.stdout)], ["Errors", text(a.stderr), text(b.stderr)], ["Values", values(a), values(b)],
      ["End", end(a), end(b)]].filter(([, x, y]) => x !== y)
    const times = `${this.sides[0].choice.value} took ${seconds(a.duration_seconds)}, ${this.sides[1].choice.value} ${seconds(b.duration_seconds)}.`
    if (!parts.length) {
      put(this.verdict, h("p", {class: "note same"}, h("b", {}, "No difference. "), times))
      return say("No difference")
    }
    put(this.verdict, h("p", {class: "note warning"}, h("b", {}, "They differ: "), parts.map(p => p[0].toLowerCase()).join(", ") + ". " + times), parts.map(([name, x, y]) => h("figure", {},
      h("figcaption", {}, name), h("pre", {class: "diff", tabIndex: 0}, diff(x, y).map(([sign, line]) =>
        h("span", {class: {"-": "old", "+": "new"}[sign] || ""}, sign + " " + line))))))
    say("The backends differ")
  }
}

const text = b => b === undefined ? "" : typeof b === "string" ? b.replace(/\n$/, "") : b.base64
const values = r => (r.outputs || []).map(o => text(o.data["text/plain"]) || Object.keys(o.data).sort().join(", ")).join("\n")
const end = r => r.exception ? r.exception.type + ": " + (r.exception.message || "") : r.status + (r.exit_code > 0 ? ", exit code " + r.exit_code : "")
