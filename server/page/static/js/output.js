// What a run prints, shows and returns, as it comes.
import {h, put} from "./dom.js"
import {base64Of, textOf} from "./api.js"
import {html, markdown, svg} from "./frame.js"
import {table} from "./table.js"

const shown = 200000 // characters of text in one block
const folded = 24 // lines that a long text shows at first
const images = ["image/png", "image/jpeg", "image/gif", "image/webp"]

// Output is the list of what a run has shown so far.
export class Output {
  constructor() {
    this.element = h("div", {class: "output"})
    this.last = null
  }

  // text adds text of a stream: "stdout" or "stderr".
  text(stream, data) {
    if (!this.last || this.last.stream !== stream) {
      this.last = new Text(stream)
      this.element.append(this.last.element)
    }
    this.last.add(textOf(data))
  }

  // value adds a value in its best form.
  async value(output) {
    this.last = null
    const place = h("div", {class: output.main ? "value" : "shown"})
    this.element.append(place)
    try {
      put(place, await best(output.data))
    } catch {
      put(place, h("p", {class: "note warning"}, "This value cannot be shown."))
    }
  }

  // note adds a sentence of the page: "error", "warning" or "quiet".
  note(kind, ...children) {
    this.last = null
    this.element.append(h("p", {class: "note " + kind}, ...children))
  }

  exception(e) {
    this.last = null
    this.element.append(h("pre", {class: "exception", tabIndex: 0}, plain(e.traceback || e.type + ": " + (e.message || ""))))
  }
}

async function best(data) {
  for (const type of images) {
    if (data[type]) return h("img", {class: "image", alt: "Image of the run", src: "data:" + type + ";base64," + base64Of(data[type])})
  }
  if (data["image/svg+xml"]) return svg(textOf(data["image/svg+xml"]))
  if (data["text/html"]) {
    const text = textOf(data["text/html"])
    return table(text) || html(text)
  }
  if (data["text/markdown"]) return markdown(textOf(data["text/markdown"]))
  if (data["application/json"] && !data["text/plain"]) return pretty(textOf(data["application/json"]))
  const [type, text] = data["text/plain"] !== undefined ? ["text/plain", data["text/plain"]] : Object.entries(data)[0] || ["", ""]
  if (type !== "text/plain" && typeof text !== "string") return h("p", {class: "note quiet"}, "A value of type " + type + ", which this page does not show.")
  const t = new Text("stdout")
  t.add(textOf(text))
  return t.element
}

function pretty(text) {
  const t = new Text("stdout")
  try {
    t.add(JSON.stringify(JSON.parse(text), null, 2))
  } catch {
    t.add(text)
  }
  return t.element
}

// plain removes the sequences by which programs colour a terminal.
const plain = text => text.replace(/\x1b\[[0-9;?]*[A-Za-z]/g, "")

// Text is a block of text that is folded when it is long. Each character that is added is looked at
// once, however the text is cut into pieces and lines.
class Text {
  constructor(stream) {
    this.stream = stream
    this.done = "" // lines that have ended
    this.line = "" // the one that has not
    this.returned = false // to the begin of that line, by its last character
    this.waits = false
    this.pre = h("pre", {tabIndex: 0})
    this.more = h("button", {type: "button", class: "quiet more", hidden: true, onclick: () => {
      this.open = !this.open
      this.draw()
    }})
    this.element = h("div", {class: "text " + stream}, this.more, this.pre)
  }

  add(text) {
    const lines = plain(text).split("\n")
    for (let i = 0; i < lines.length; i++) {
      this.write(lines[i])
      if (i === lines.length - 1) break
      this.done += this.line + "\n"
      this.line = ""
      this.returned = false
    }
    if (this.done.length + this.line.length > 2 * shown) {
      this.cut = true
      this.line = this.line.slice(-shown)
      this.done = this.done.slice(Math.min(0, this.line.length - shown) || this.done.length)
    }
    if (this.waits) return
    if (!this.drawn) return this.draw()
    this.waits = true // a flood is drawn once in a frame
    setTimeout(() => this.draw(), 16)
  }

  // write adds to the line that has not ended. What follows a carriage return is written over it.
  write(text) {
    let end = text.length
    while (end > 0 && text[end - 1] === "\r") end--
    if (end > 0) {
      const at = text.lastIndexOf("\r", end - 1)
      if (this.returned || at >= 0) this.line = ""
      this.line += text.slice(at + 1, end)
      this.returned = false
    }
    if (end < text.length) this.returned = true
  }

  draw() {
    this.waits = false
    this.drawn = true
    const all = this.done + this.line, text = all.slice(-shown)
    const lines = text.replace(/\n$/, "").split("\n")
    const long = lines.length > folded + 4
    this.pre.textContent = (this.cut || text !== all ? "…\n" : "") + (long && !this.open ? lines.slice(-folded).join("\n") : text.replace(/\n$/, ""))
    this.more.hidden = !long
    this.more.textContent = this.open ? "Show the end only" : `Show ${lines.length - folded} earlier lines`
    this.more.setAttribute("aria-expanded", String(Boolean(this.open)))
  }
}
