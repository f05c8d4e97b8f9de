// What happens at the server, for operators.
import {call} from "./api.js"
import {told} from "./cell.js"
import {h, put, seconds} from "./dom.js"

const every = 2000 // milliseconds between two looks

// Operators is the view of operators. It looks only while it is visible.
export class Operators {
  constructor() {
    this.problem = h("p", {class: "note error", role: "alert"})
    this.body = h("div", {class: "boards"}, h("p", {class: "quiet"}, "Loading…"))
    this.state = h("span", {class: "where"})
    this.pause = h("button", {type: "button", class: "quiet", "aria-pressed": "false", onclick: () => {
      const paused = this.pause.getAttribute("aria-pressed") === "true"
      this.pause.setAttribute("aria-pressed", String(!paused))
      if (paused) this.look()
    }}, "Pause")
    this.element = h("div", {class: "operators"}, h("div", {class: "toolbar"}, this.state, this.pause), this.problem, this.body)
  }

  wake() {
    this.awake = true
    this.look()
  }

  rest() {
    this.awake = false
    clearTimeout(this.timer)
  }

  end() {
    this.rest()
  }

  async look() {
    clearTimeout(this.timer)
    if (!this.awake || this.pause.getAttribute("aria-pressed") === "true") return
    try {
      const [o, e] = await Promise.all([call("GET", "/v1/overview"), this.experiments()])
      put(this.problem)
      this.draw(o, e)
    } catch (err) {
      put(this.problem, told(err))
    }
    if (this.awake) this.timer = setTimeout(() => document.hidden ? this.later() : this.look(), every)
  }

  later() {
    document.addEventListener("visibilitychange", () => this.look(), {once: true})
  }

  // experiments are read less often: they cost queries of the store.
  async experiments() {
    if (!this.found || performance.now() - this.foundAt > 15000) {
      this.found = (await call("GET", "/v1/experiments")).experiments
      this.foundAt = performance.now()
    }
    return this.found
  }

  draw(o, experiments) {
    const running = o.keys.reduce((n, k) => n + k.running, 0)
    put(this.state, `Up for ${since(o.uptime_seconds)}. ${o.sessions.length} ${o.sessions.length === 1 ? "session" : "sessions"}, ${running} running.`)
    const scrolled = [...this.body.querySelectorAll(".table")].map(e => e.scrollLeft)
    const focus = document.activeElement?.closest?.(".boards .table")?.getAttribute("aria-label")
    put(this.body,
      board("Backends", ["Backend", "Sessions", "Waiting", "Breaker", "Warm", "Pool hits"], o.backends.map(b => [
        b.name + (b.removed ? " (removed)" : ""), b.sessions, b.waiting, b.breaker ? h("span", {class: "state " + b.breaker}, b.breaker) : "none",
        b.pools?.length ? b.pools.map(p => p.warm + (p.starting ? " +" + p.starting : "")).join(", ") : "no pool",
        b.pools?.length ? b.pools.map(p => `${p.hits} of ${p.hits + p.misses}` + (p.failed ? `, ${p.failed} failed` : "")).join("; ") : ""]), "The server says nothing about its backends."),
      board("Arms of routes", ["Route", "Assigned", "Served by", "Turns", "Answered", "p50", "p95", "Cost", "Errors"], o.arms.map(a => [
        a.route || "direct", a.assigned, a.backend || "none", a.turns, share(a.answered, a.turns), seconds(a.p50_seconds), seconds(a.p95_seconds), a.cost || "", counts(a.errors)]), "No code has run yet."),
      board("Experiments", ["Route", "Arm", "Share", "Sessions", "Success", "Verdict"], experiments.flatMap(e => e.arms.map((a, i) => [
        i ? "" : e.route, a.backend, Math.round(a.share * 100) + " %", a.sessions, interval(a.success), i ? "" : e.verdict.text])), "No route splits its sessions."),
      board("Sessions", ["Subject", "Backend", "Languages", "Age", "State"], o.sessions.map(s => [
        s.subject, s.backend, s.languages.join(", "), since((Date.now() - Date.parse(s.created)) / 1000), s.busy ? h("span", {class: "state trying"}, "busy") : "idle"]), "There are no sessions."),
      board("Keys", ["Subject", "Sessions", "Running", "Runs", "Without result"], o.keys.map(k => [
        k.subject, k.sessions, k.running, counts(k.runs) || "0", k.run_errors]), "No key has been used."),
      board("Used today", ["Account", "Runs", "Time", "Cost"], o.used.map(u => [u.account, u.runs, seconds(u.seconds), u.cost || ""]), "Nothing has a quota or a price."),
      board("Failures", ["Time", "Subject", "Operation", "Status", "What", "Request"], o.failures.slice(0, 50).map(f => [
        new Date(f.time).toLocaleTimeString(), f.subject, f.operation, f.status + " " + f.kind, f.message, f.request_id]), "No request has failed."))
    this.body.querySelectorAll(".table").forEach((e, i) => {
      e.scrollLeft = scrolled[i] || 0
      if (focus && e.getAttribute("aria-label") === focus) e.focus({preventScroll: true})
    })
  }
}

function board(title, names, rows, empty) {
  if (!rows.length) return h("section", {class: "board"}, h("h2", {}, title), h("p", {class: "quiet"}, empty))
  const number = rows[0].map((v, i) => rows.every(r => typeof r[i] === "number"))
  return h("section", {class: "board"}, h("h2", {}, title),
    h("div", {class: "table", tabIndex: 0, role: "region", "aria-label": title}, h("table", {},
      h("thead", {}, h("tr", {}, names.map((n, i) => h("th", {scope: "col", class: number[i] ? "number" : ""}, n)))),
      h("tbody", {}, rows.map(r => h("tr", {}, r.map((v, i) => h("td", {class: number[i] ? "number" : ""}, v instanceof Node ? v : String(v)))))))))
}

const counts = m => Object.entries(m || {}).map(([k, n]) => `${k} ${n}`).join(", ")
const share = (part, of) => of ? (part * 100 / of).toFixed(part === of ? 0 : 1) + " %" : ""
const interval = r => r.of ? `${(r.share * 100).toFixed(1)} % (${(r.low * 100).toFixed(1)} to ${(r.high * 100).toFixed(1)})` : ""

function since(s) {
  if (s < 60) return Math.max(0, Math.round(s)) + " s"
  if (s < 3600) return Math.floor(s / 60) + " min"
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min"
  return Math.floor(s / 86400) + " d"
}
