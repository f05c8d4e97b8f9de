// What a run has made in HTML, SVG or Markdown is shown in a frame that has no scripts, no origin
// and no network: its sandbox allows nothing, and its policy loads nothing. Neither stops a browser
// that connects ahead, or follows a link. So a document is first reduced to what shows something:
// see settled.
import purifier from "../npm/dompurify.js"
import {h} from "./dom.js"

const policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"
const longest = 200000 // characters of a document that is shown as text

// The one place where text becomes HTML, in browsers that know such rules. Others have the sandbox.
const rule = globalThis.trustedTypes?.createPolicy("frame", {createHTML: text => text}) || {createHTML: text => text}

purifier.setConfig({
  USE_PROFILES: {html: true, svg: true, svgFilters: true},
  ADD_TAGS: ["use"], // of charts, whose text and marks are drawn once
  IN_PLACE: true,
  // No value of an attribute names a server. Text of a reader, such as titles, and styles may look
  // so: the policy of the frame is for what styles load.
  ALLOWED_URI_REGEXP: /^(?:data:image\/(?:png|jpeg|gif|webp|svg\+xml)[;,]|[^:/\\]*$)/i,
  TRUSTED_TYPES_POLICY: globalThis.trustedTypes ? rule : null,
})

// What refers to something refers to a part of the document or is a picture. Links are only to parts
// of the document: all others lead the reader away.
purifier.addHook("uponSanitizeAttribute", (e, a) => {
  if (!/^((xlink:)?href|src|srcset|action|background|cite|poster)$/.test(a.attrName)) return
  const part = a.attrValue.startsWith("#"), picture = a.attrValue.startsWith("data:") && /^(img|image|source)$/.test(e.localName)
  if (!part && !picture) a.keepAttr = false
})

// parsed returns a template with HTML, which nothing is loaded for and which is never shown. Names
// of elements cannot hide its properties, as they can those of a document.
export function parsed(text) {
  const t = document.createElement("template")
  t.innerHTML = rule.createHTML(text)
  return t
}

// settled returns what the sanitiser leaves of HTML that is to follow head, or null. A browser that
// parses HTML which it has written itself may come to other elements than were written. So the text
// is parsed as the frame will parse it, and is good once that changes nothing and the sanitiser
// finds nothing in what the frame will have.
function settled(head, text) {
  for (let tries = 0; tries < 3; tries++) {
    const doc = new DOMParser().parseFromString(rule.createHTML(head + text), "text/html")
    const body = Document.prototype.querySelector.call(doc, "body") // which names of elements cannot hide
    if (!body) return null // a set of frames
    const written = body.innerHTML
    purifier.sanitize(body)
    const left = body.innerHTML
    if (written === text && left === text) return text
    text = left
  }
  return null
}

// frame shows HTML, or its text if it does not settle. The height is an estimate in pixels, and the
// reader can change it.
export function frame(html, title, height, look = "") {
  const head = `<!doctype html><html><head><meta http-equiv="Content-Security-Policy" content="${policy}">` +
    `<meta name="color-scheme" content="${look === "text" ? "light dark" : "light"}"><style>` +
    "body { font: 15px/1.55 system-ui, sans-serif; margin: 12px; overflow-wrap: anywhere } svg, img { max-width: 100%; height: auto } body > svg { display: block }" +
    "table { border-collapse: collapse } th, td { padding: 4px 10px; border-bottom: 1px solid #8884; text-align: left }" +
    "pre, code { font: 13px/1.5 ui-monospace, monospace } pre { white-space: pre-wrap }</style></head><body>"
  const body = settled(head, html)
  if (body === null) return h("pre", {tabIndex: 0}, html.slice(0, longest))
  const f = h("iframe", {title, loading: "eager", referrerPolicy: "no-referrer"})
  f.setAttribute("sandbox", "")
  f.srcdoc = rule.createHTML(head + body)
  const box = h("div", {class: "frame " + look}, f)
  box.style.height = Math.min(Math.max(height, 60), 640) + "px"
  return box
}

// svg shows a chart. One without a view box gets one, so that it shrinks instead of being cut off.
export function svg(text) {
  const root = parsed(text).content.querySelector("svg")
  const size = name => /%/.test(root?.getAttribute(name)) ? 0 : parseFloat(root?.getAttribute(name)) || 0
  const view = (root?.getAttribute("viewBox") || "").split(/[\s,]+/).map(Number)
  const width = size("width") || view[2] || 600, height = size("height") || view[3] || 400
  if (root && view.length !== 4) root.setAttribute("viewBox", `0 0 ${width} ${height}`)
  const room = Math.min(document.getElementById("main").clientWidth - 60, width)
  const box = frame(root ? root.outerHTML : text, "Chart", height * Math.min(1, room / width) + 26)
  box.style.maxWidth = width + 26 + "px"
  return box
}

// markdown shows formatted text.
export async function markdown(text) {
  const {default: Markdown} = await import("../npm/markdown-it.js")
  const room = Math.min(80, (document.getElementById("main").clientWidth - 60) / 8) // characters
  const lines = text.split("\n").reduce((n, line) => n + Math.max(1, Math.ceil(line.length / room)), 0)
  return frame(new Markdown({html: true}).render(text.slice(0, 1 << 20)), "Text", 40 + lines * 24, "text")
}

// html shows a document.
export const html = text => frame(text, "HTML of the run", 320)
