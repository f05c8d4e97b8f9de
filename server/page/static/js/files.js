// The files of a sandbox: listed, dropped in, previewed and saved.
import {call, fetchFile, pathOf, upload} from "./api.js"
import {told} from "./cell.js"
import {bytes, h, put, save, say} from "./dom.js"
import {preview} from "./preview.js"

// Files is the panel of files. sandbox(make) returns the session, and makes one if make is true.
export class Files {
  constructor(sandbox) {
    this.sandbox = sandbox
    this.dir = "."
    this.list = h("ul", {class: "files"})
    this.preview = h("div", {class: "preview", role: "region", "aria-label": "Preview", hidden: true})
    this.where = h("p", {class: "where"})
    const pick = h("input", {type: "file", multiple: true, hidden: true, onchange: () => this.add([...pick.files]).then(() => { pick.value = "" })})
    this.drop = h("div", {class: "drop"}, h("button", {type: "button", class: "quiet", onclick: () => pick.click()}, "Add files"), h("span", {}, "or drop them here"), pick)
    this.problem = h("p", {class: "note error", role: "alert", hidden: true})
    this.element = h("section", {class: "panel", "aria-label": "Files"}, h("h2", {}, "Files"), this.drop, this.problem, this.where, this.list, this.preview)
    // A file that misses the panel must not replace the page.
    addEventListener("dragover", e => e.preventDefault())
    addEventListener("drop", e => e.preventDefault())
    this.element.addEventListener("dragover", () => this.drop.classList.add("over"))
    this.element.addEventListener("dragleave", () => this.drop.classList.remove("over"))
    this.element.addEventListener("drop", e => {
      this.drop.classList.remove("over")
      if (e.dataTransfer.files.length) this.add([...e.dataTransfer.files])
    })
    this.show([])
  }

  async guarded(f) {
    this.problem.hidden = true
    try {
      return await f()
    } catch (err) {
      this.problem.hidden = false
      this.problem.textContent = told(err)
    }
  }

  path(name) {
    return this.dir === "." ? name : this.dir + "/" + name
  }

  add(files) {
    return this.guarded(async () => {
      const s = await this.sandbox(true)
      for (const f of files) await upload("PUT", pathOf(s.id, this.path(f.name)), f)
      say(files.length === 1 ? files[0].name + " added" : files.length + " files added")
      await this.refresh()
    })
  }

  refresh() {
    return this.guarded(async () => {
      const s = await this.sandbox(false)
      if (!s) return this.show([])
      const {files, more} = await call("GET", `/v1/sessions/${s.id}/files?dir=${encodeURIComponent(this.dir)}`)
      this.show(files, more)
    })
  }

  show(files, more) {
    put(this.where, this.dir === "." ? "" : h("button", {type: "button", class: "link", onclick: () => this.enter(this.dir.split("/").slice(0, -1).join("/") || ".")}, "↑ " + this.dir))
    const sorted = files.toSorted((a, b) => (b.kind === "directory") - (a.kind === "directory") || a.name.localeCompare(b.name, undefined, {numeric: true}))
    put(this.list, sorted.slice(0, 500).map(f => this.row(f)))
    if (!files.length) this.list.append(h("li", {class: "empty"}, this.dir === "." ? "No files yet. What your code writes appears here." : "This directory is empty."))
    if (more || files.length > 500) this.list.append(h("li", {class: "empty"}, "There are more files than are shown."))
  }

  row(f) {
    const name = f.name.split("/").pop(), path = this.path(name), dir = f.kind === "directory"
    return h("li", {},
      h("button", {type: "button", class: "link name", onclick: () => dir ? this.enter(path) : this.open(path)}, dir ? name + "/" : name),
      dir ? null : h("span", {class: "size"}, bytes(f.size)),
      dir ? null : h("button", {type: "button", class: "quiet icon", title: "Download " + name, "aria-label": "Download " + name, onclick: () => this.download(path)}, "↓"),
      h("button", {type: "button", class: "quiet icon", title: "Remove " + name, "aria-label": "Remove " + name, onclick: () => this.remove(path)}, "×"))
  }

  enter(dir) {
    this.dir = dir
    return this.refresh()
  }

  download(path) {
    return this.guarded(async () => save(path, await fetchFile(pathOf((await this.sandbox(true)).id, path))))
  }

  remove(path) {
    return this.guarded(async () => {
      await call("DELETE", pathOf((await this.sandbox(true)).id, path))
      this.preview.hidden = true
      await this.refresh()
    })
  }

  // open previews a file.
  open(path) {
    return this.guarded(async () => {
      const data = await fetchFile(pathOf((await this.sandbox(true)).id, path))
      this.preview.hidden = false
      put(this.preview, await preview(path, data, () => { this.preview.hidden = true }))
      this.preview.scrollIntoView({block: "nearest"})
      say(path + " is shown")
    })
  }
}
