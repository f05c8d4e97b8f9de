// The notebook: cells, the files of their sandbox, and its packages.
import {Cell, install, languageName, told} from "./cell.js"
import {h, put, say, seconds} from "./dom.js"
import {Files} from "./files.js"
import {Sandboxes} from "./sandboxes.js"

const kept = "execbroker-cells"

const first = `# A chart without a library: an SVG is text.
rain = [31, 24, 28, 42, 61, 58, 49, 66, 54, 47, 40, 36]


class Chart:
    def _repr_svg_(self):
        bars = "".join(
            f'<rect x="{45 * i}" y="{180 - 2 * mm}" width="34" height="{2 * mm}" rx="4" fill="#3b6fd4"><title>{mm} mm</title></rect>'
            f'<text x="{45 * i + 17}" y="200" text-anchor="middle" font-size="13">{"JFMAMJJASOND"[i]}</text>'
            for i, mm in enumerate(rain))
        return f'<svg xmlns="http://www.w3.org/2000/svg" width="530" height="210" font-family="sans-serif">{bars}</svg>'


print("Twelve months of rain")
Chart()
`

// Notebook is the view of a user.
export class Notebook {
  constructor(server) {
    this.server = server
    const caps = server.capabilities
    this.languages = caps.languages.map(l => l.language)
    if (caps.features.includes("typescript") && !this.languages.includes("typescript")) this.languages.push("typescript")
    this.timeout = Math.min(server.max_timeout_seconds, 300)
    this.sandboxes = new Sandboxes("", caps)
    this.cells = []
    this.list = h("div", {class: "cells"})
    this.files = new Files(async make => {
      const language = this.current?.language || this.languages[0]
      return make ? this.sandboxes.get(language) : this.sandboxes.peek(language)
    })
    this.element = h("div", {class: "book"},
      h("div", {class: "column"}, this.toolbar(), this.list,
        h("button", {type: "button", class: "add", onclick: () => this.add(this.current?.language).edit.focus()}, "Add a cell")),
      h("aside", {class: "side", "aria-label": "Sandbox"}, this.files.element, this.packages()))
    addEventListener("pagehide", () => this.sandboxes.leave())
    let cells = []
    try {
      cells = JSON.parse(sessionStorage.getItem(kept)) || []
    } catch {
      // What is kept is of an older page.
    }
    if (!Array.isArray(cells) || !cells.length) cells = [this.languages.includes("python") ? ["python", first] : [this.languages[0], ""]]
    for (const [language, text] of cells) this.add(this.languages.includes(language) ? language : this.languages[0], String(text))
  }

  toolbar() {
    this.backend = h("select", {"aria-label": "Backend", onchange: () => this.restart()},
      h("option", {value: ""}, "Backend by route"), (this.server.backends || []).map(b => h("option", {value: b}, b)))
    return h("div", {class: "toolbar"},
      this.server.backends?.length > 1 ? this.backend : h("span", {class: "where"}, "Backend ", h("b", {}, this.server.backend)),
      h("button", {type: "button", onclick: () => this.runAll()}, "Run all"),
      h("button", {type: "button", class: "quiet", onclick: () => this.restart()}, "New sandbox"))
  }

  packages() {
    const names = h("input", {"aria-label": "Packages to install", placeholder: "numpy pandas", autocomplete: "off", spellcheck: false})
    const button = h("button", {type: "submit"}, "Install")
    const out = h("p", {class: "note", role: "status"})
    const form = h("form", {class: "row", onsubmit: async e => {
      e.preventDefault()
      const list = names.value.split(/[\s,]+/).filter(Boolean)
      if (!list.length) return
      button.disabled = true
      put(out, "Installing…")
      try {
        const r = await install(this, this.current?.language || this.languages[0], list)
        put(out, r.status === "ok" ? `${list.join(", ")}: ready after ${seconds(r.duration_seconds)}.` : r.exception?.message || "The installation " + r.status + ".")
        if (r.status === "ok") names.value = ""
      } catch (err) {
        put(out, told(err))
      }
      button.disabled = false
    }}, names, button)
    return h("section", {class: "panel", "aria-label": "Packages"}, h("h2", {}, "Packages"), form, out)
  }

  // can reports whether runs of a language have a feature, whichever backend serves them.
  can(feature, language) {
    const runtime = this.server.capabilities.languages.find(l => l.language === (language === "typescript" ? "javascript" : language))
    return Boolean(runtime?.features?.includes(feature)) && !(runtime.varies || []).includes(feature)
  }

  add(language = this.languages[0], text = "", after) {
    const c = new Cell(this, language, text)
    const at = after ? this.cells.indexOf(after) + 1 : this.cells.length
    this.cells.splice(at, 0, c)
    this.list.insertBefore(c.element, this.list.children[at] || null)
    c.element.addEventListener("focusin", () => { this.current = c })
    this.changed()
    return c
  }

  remove(c) {
    if (c.running) c.stop()
    const at = this.cells.indexOf(c)
    this.cells.splice(at, 1)
    c.element.remove()
    c.edit.end()
    if (this.current === c) this.current = null
    if (!this.cells.length) this.add(c.language)
    this.cells[Math.min(at, this.cells.length - 1)].edit.focus()
    this.changed()
  }

  // next moves to the cell after c.
  next(c) {
    const n = this.cells[this.cells.indexOf(c) + 1] || this.add(c.language)
    n.edit.focus()
  }

  // words are the names in the other cells of the language, for completion.
  words(c) {
    const all = new Set()
    for (const o of this.cells) {
      if (o !== c && o.language === c.language) for (const w of o.edit.text.slice(0, 50000).match(/[\p{L}_$][\p{L}\p{N}_$]{2,}/gu) || []) all.add(w)
    }
    return [...all]
  }

  changed() {
    // With the key, the user has asked that this tab keeps what is in it.
    const text = this.server.kept() ? JSON.stringify(this.cells.map(c => [c.language, c.edit.text])) : ""
    if (text && text.length < 1 << 20) sessionStorage.setItem(kept, text)
  }

  ran(c) {
    this.current = this.current || c
    return this.files.refresh()
  }

  open(name) {
    return this.files.open(name)
  }

  async runAll() {
    for (const c of [...this.cells]) {
      await c.run()
      if (c.stopped || c.result && c.result.status !== "ok") return
    }
  }

  async restart() {
    for (const c of this.cells) if (c.running) c.stop()
    await this.sandboxes.end()
    this.sandboxes = new Sandboxes(this.backend.value, this.server.capabilities)
    await this.files.enter(".")
    say("The next run gets a new sandbox")
  }

  async end() {
    await this.sandboxes.end()
  }
}
