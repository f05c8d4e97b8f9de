// The page begins here: the key, then the views.
import {call, forget, known, remember} from "./api.js"
import {told} from "./cell.js"
import {h, put} from "./dom.js"

const main = document.getElementById("main"), nav = document.getElementById("views"), leave = document.getElementById("leave-key")
let open = []

function ask(problem) {
  put(nav)
  leave.hidden = true
  const key = h("input", {id: "key", type: "password", autocomplete: "off", required: true, spellcheck: false})
  const keep = h("input", {id: "keep", type: "checkbox"})
  const form = h("form", {class: "key", onsubmit: e => {
    e.preventDefault()
    remember(key.value.trim(), keep.checked)
    begin()
  }},
  h("h1", {}, "Run code in a sandbox"),
  h("p", {}, "Enter a key of this server. ", h("code", {}, "execbroker serve"), " prints one when it starts, unless it was given keys."),
  h("label", {for: "key"}, "Key"), key,
  h("label", {class: "check"}, keep, "Keep it and the cells in this tab when the page is reloaded"),
  h("button", {class: "primary", type: "submit"}, "Continue"),
  h("p", {class: "note error", role: "alert"}, problem || ""))
  put(main, form)
  key.focus()
}

async function begin() {
  if (!known()) return ask()
  put(main, h("p", {class: "quiet center"}, "Connecting…"))
  let server
  try {
    server = await call("GET", "/v1/capabilities")
  } catch (err) {
    const wrong = err.kind === "unauthorized"
    if (wrong) forget()
    return ask(wrong ? "The server does not know this key." : told(err))
  }
  server.kept = () => sessionStorage.getItem("execbroker-key") !== null
  const {Notebook} = await import("./notebook.js")
  const views = [["Notebook", () => new Notebook(server)]]
  if (server.backends?.length > 1) {
    const {Compare} = await import("./compare.js")
    views.push(["Compare", () => new Compare(server)])
  }
  if (server.operator) {
    const {Operators} = await import("./operators.js")
    views.push(["Operators", () => new Operators()])
  }
  open = []
  const tabs = views.map(([name, make], i) => h("button", {type: "button", role: "tab", id: "tab-" + i, "aria-controls": "view-" + i, onclick: () => choose(i)}, name))
  const panes = views.map(([name], i) => h("div", {role: "tabpanel", id: "view-" + i, "aria-labelledby": "tab-" + i, hidden: true}, h("h1", {class: "unseen"}, name)))
  const choose = i => {
    tabs.forEach((t, j) => {
      t.setAttribute("aria-selected", String(i === j))
      t.tabIndex = i === j ? 0 : -1
      panes[j].hidden = i !== j
    })
    for (const v of open) v?.rest?.()
    if (!open[i]) {
      open[i] = views[i][1]()
      panes[i].append(open[i].element)
    }
    open[i].wake?.()
  }
  nav.onkeydown = e => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[e.key]
    if (!step) return
    const to = (tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length
    choose(to)
    tabs[to].focus()
  }
  put(nav, tabs)
  put(main, panes)
  leave.hidden = false
  choose(0)
}

leave.addEventListener("click", async () => {
  const views = open
  await Promise.allSettled(views.map(v => v?.end?.()))
  forget()
  sessionStorage.clear()
  ask()
})

begin()
