// The sandboxes behind the cells: one for each language, or one for all if the backend mixes them.
import {call, last} from "./api.js"

// Sandboxes makes a sandbox when something needs it.
export class Sandboxes {
  // backend is one of the server's, or empty: then the routes decide. With only, a sandbox has just
  // that language.
  constructor(backend, capabilities, only) {
    this.backend = backend
    this.mixed = !only && (capabilities.features || []).includes("mixed-languages") && !(capabilities.varies || []).includes("mixed-languages")
    this.languages = capabilities.languages.map(l => l.language)
    this.made = new Map() // promises of sessions, by group
    this.ids = new Map() // of those that are there
  }

  group(language) {
    return this.mixed ? "" : language === "typescript" ? "javascript" : language
  }

  // peek returns the sandbox of a language if there is one.
  peek(language) {
    return this.made.get(this.group(language))?.then(s => s, () => undefined)
  }

  // get returns the sandbox of a language.
  get(language) {
    const group = this.group(language)
    if (!this.made.has(group)) {
      const languages = this.mixed ? this.languages.filter(l => l !== "typescript") : [group]
      const body = {languages: [...new Set([group || languages[0], ...languages])].filter(Boolean)}
      if (this.backend) body.backend = this.backend
      const made = call("POST", "/v1/sessions", body)
      this.made.set(group, made)
      made.then(s => this.ids.set(group, s.id), () => this.made.delete(group))
    }
    return this.made.get(group)
  }

  // lost forgets a sandbox that has ended by itself.
  lost(language) {
    this.made.delete(this.group(language))
    this.ids.delete(this.group(language))
  }

  // leave ends all of them while the page goes away. Those that stay end when they are idle.
  leave() {
    for (const id of this.ids.values()) last("/v1/sessions/" + id)
  }

  // end ends all of them.
  async end() {
    const all = [...this.made.values()]
    this.made.clear()
    this.ids.clear()
    await Promise.allSettled(all.map(async made => call("DELETE", "/v1/sessions/" + (await made).id)))
  }
}
