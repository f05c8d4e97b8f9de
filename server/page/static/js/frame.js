// What a run has made in HTML, SVG or Markdown is shown in a frame that has no scripts, no origin
// and no network: its sandbox allows nothing, and its policy loads nothing.
import {h} from "./dom.js"

const policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"

// The one place where text becomes HTML, in browsers that know such rules. Others have the sandbox.
const rule = globalThis.trustedTypes?.createPolicy("frame", {createHTML: text => text}) || {createHTML: text => text}

// parsed returns a template with HTML, which nothing is loaded for and which is never shown. Names
// of elements cannot hide its properties, as they can those of a document.
export function parsed(text) {
  const t = document.createElement("template")
  t.innerHTML = rule.createHTML(text)
  return t
}

// active are elements that a policy has no word for: a browser connects to servers that links name
// when they are pressed, and an animation can make a link of what was none.
const active = "script, link, meta, base, iframe, frame, frameset, object, embed, portal, fencedframe, template, form, set, animate"

// frame shows HTML. The height is an estimate in pixels, and the reader can change it.
export function frame(html, title, height, look = "") {
  const t = parsed(html)
  // A field of a form that is named so would hide its own remove.
  for (const e of t.content.querySelectorAll(active)) Element.prototype.remove.call(e)
  for (const e of t.content.querySelectorAll("a, area")) {
    for (const name of ["href", "xlink:href", "ping", "target"]) e.removeAttribute(name)
  }
  const f = h("iframe", {title, loading: "eager", referrerPolicy: "no-referrer"})
  f.setAttribute("sandbox", "")
  f.srcdoc = rule.createHTML(`<!doctype html><meta http-equiv="Content-Security-Policy" content="${policy}">` +
    `<meta name="color-scheme" content="${look === "text" ? "light dark" : "light"}"><style>` +
    "body { font: 15px/1.55 system-ui, sans-serif; margin: 12px; overflow-wrap: anywhere } svg, img { max-width: 100%; height: auto } body > svg { display: block }" +
    "table { border-collapse: collapse } th, td { padding: 4px 10px; border-bottom: 1px solid #8884; text-align: left }" +
    "pre, code { font: 13px/1.5 ui-monospace, monospace } pre { white-space: pre-wrap }</style>" + t.innerHTML)
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
  const {parse} = await import("../npm/marked.js")
  const room = Math.min(80, (document.getElementById("main").clientWidth - 60) / 8) // characters
  const lines = text.split("\n").reduce((n, line) => n + Math.max(1, Math.ceil(line.length / room)), 0)
  return frame(parse(text.slice(0, 1 << 20)), "Text", 40 + lines * 24, "text")
}

// html shows a document.
export const html = text => frame(text, "HTML of the run", 320)
