// A table of a run is built anew from the text of its cells, so that nothing of its HTML is kept.
import {h, put} from "./dom.js"
import {parsed} from "./frame.js"

const most = 1000 // rows that are shown

// table returns a sortable table if HTML is one table and little else, and otherwise null.
export function table(html) {
  const doc = parsed(html).content
  for (const e of doc.querySelectorAll("style, script, template")) e.remove()
  const all = doc.querySelectorAll("table")
  if (all.length !== 1) return null
  const rows = [...all[0].rows].map(row => [...row.cells].map(c => ({text: c.textContent.trim(), head: c.tagName === "TH", wide: c.colSpan > 1 || c.rowSpan > 1})))
  all[0].remove()
  const rest = doc.textContent.trim()
  if (rows.length < 2 || rest.length > 200 || doc.querySelector("img, svg, video, canvas") || rows.flat().some(c => c.wide)) return null
  const [names, ...body] = rows
  if (!names.every(c => c.head) || !body.every(row => row.length === names.length)) return null
  return view(names.map(c => c.text), body, rest)
}

const number = text => text === "" ? NaN : Number(text.replace(/[, _\u2009]/g, "").replace("\u2212", "-").replace(/%$/, ""))

function view(names, rows, caption) {
  const numeric = names.map((_, i) => rows.some(r => !isNaN(number(r[i].text))) && rows.every(r => /^(|nan|none|null|<na>|nat)$/i.test(r[i].text) || !isNaN(number(r[i].text))))
  const body = h("tbody")
  const fill = list => put(body, list.slice(0, most).map(r => h("tr", {}, r.map((c, i) => h(c.head ? "th" : "td", {class: numeric[i] ? "number" : "", scope: c.head ? "row" : undefined}, c.text)))))
  const heads = names.map((name, i) => {
    const button = h("button", {type: "button", onclick: () => {
      const up = head.getAttribute("aria-sort") !== "ascending"
      for (const e of heads) e.removeAttribute("aria-sort")
      head.setAttribute("aria-sort", up ? "ascending" : "descending")
      fill(rows.toSorted((a, b) => order(a[i].text, b[i].text, numeric[i]) * (up ? 1 : -1)))
    }}, name || "#")
    const head = h("th", {scope: "col", class: numeric[i] ? "number" : ""}, button)
    return head
  })
  fill(rows)
  const notes = [caption, rows.length > most ? `The first ${most} of ${rows.length} rows are shown.` : ""].filter(Boolean).join(" ")
  return h("div", {class: "table", tabIndex: 0, role: "region", "aria-label": "Table of the run"},
    h("table", {}, notes ? h("caption", {}, notes) : null, h("thead", {}, h("tr", {}, heads)), body))
}

// order compares two cells. What is no number is last.
function order(a, b, numeric) {
  if (!numeric) return a.localeCompare(b, undefined, {numeric: true})
  const x = number(a), y = number(b)
  return isNaN(x) ? isNaN(y) ? 0 : 1 : isNaN(y) ? -1 : x - y
}
