// A file of a sandbox is shown by what its name says that it is.
import {h, save} from "./dom.js"
import {html, markdown, svg} from "./frame.js"

const image = /\.(png|jpe?g|gif|webp)$/i
const previewed = 1 << 20 // bytes of a file that is previewed

// preview returns elements that show a file, save it, and call close.
export const preview = async (path, data, close) => [h("h3", {}, path), await look(path, data),
  h("div", {class: "row"}, h("button", {type: "button", onclick: () => save(path, data)}, "Download"),
    h("button", {type: "button", class: "quiet", onclick: close}, "Close"))]

// look returns a preview of a file by its name.
async function look(path, data) {
  if (data.byteLength > previewed * (image.test(path) ? 8 : 1)) return h("p", {class: "note quiet"}, "The file is too large for a preview.")
  if (image.test(path)) {
    const type = path.split(".").pop().toLowerCase().replace("jpg", "jpeg")
    let binary = ""
    for (const c of new Uint8Array(data)) binary += String.fromCharCode(c)
    return h("img", {class: "image", alt: path, src: "data:image/" + type + ";base64," + btoa(binary)})
  }
  let text
  try {
    text = new TextDecoder("utf-8", {fatal: true}).decode(data)
  } catch {
    return h("p", {class: "note quiet"}, "This file is not text. Download it to look at it.")
  }
  if (/\.svg$/i.test(path)) return svg(text)
  if (/\.html?$/i.test(path)) return html(text)
  if (/\.(md|markdown)$/i.test(path)) return markdown(text)
  return h("pre", {class: "file", tabIndex: 0}, text)
}
