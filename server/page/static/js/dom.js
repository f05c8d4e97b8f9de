// Elements are made by functions, never of strings of HTML.

// h makes an element. Properties that begin with "on" are listeners, "class" and what has a dash
// are attributes, and all others are properties of the element.
export function h(name, properties = {}, ...children) {
  const e = document.createElement(name)
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue
    if (key.startsWith("on")) e.addEventListener(key.slice(2), value)
    else if (key === "class") e.className = value
    else if (key.includes("-") || key === "role" || key === "for") e.setAttribute(key, value)
    else e[key] = value
  }
  e.append(...children.flat().filter(c => c !== undefined && c !== null))
  return e
}

// put replaces what is in an element.
export function put(e, ...children) {
  e.replaceChildren(...children.flat().filter(c => c !== undefined && c !== null))
  return e
}

// say tells readers of the screen.
export function say(text) {
  document.getElementById("said").textContent = text
}

// seconds formats a duration for people.
export function seconds(s) {
  if (s < 0.001) return "under 1 ms"
  if (s < 1) return Math.round(s * 1000) + " ms"
  if (s < 60) return s.toFixed(s < 10 ? 2 : 1) + " s"
  return Math.floor(s / 60) + " min " + Math.round(s % 60) + " s"
}

// bytes formats a size for people.
export function bytes(n) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (n < 1000 || unit === "GB") return (unit === "B" || n >= 100 ? Math.round(n) : n.toFixed(1)) + " " + unit
    n /= 1000
  }
}

// save lets the user save bytes as a file. The browser never shows them.
export function save(name, data) {
  const url = URL.createObjectURL(new Blob([data], {type: "application/octet-stream"}))
  h("a", {href: url, download: name.split("/").pop()}).click()
  setTimeout(() => URL.revokeObjectURL(url), 10000)
}
