// The site: what VitePress cannot know of a repository is in site.json, which the program beside
// this directory writes.
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { transformerStyleToClass } from '@shikijs/transformers'

const here = dirname(fileURLToPath(import.meta.url))
const site = JSON.parse(readFileSync(join(here, 'site.json'), 'utf8'))
const colours = transformerStyleToClass({ classPrefix: 'code-' })

// slug makes anchors as code hosts do, so that links to parts of pages work on both.
const slug = title => title.trim().toLowerCase().replace(/[^\p{L}\p{N}\p{M}_ -]/gu, '').replace(/ /g, '-')

// target is where a link or picture of a file of the repository leads: to its page, or to the host
// of the repository.
function target(source, href, page) {
  const [, path, rest] = href.match(/^([^?#]*)(.*)$/)
  const file = posix.join(posix.dirname(source), decodeURI(path))
  const at = site.pages[file] ?? site.pages[posix.join(file, 'README.md')]
  if (at) return at.endsWith('.md') ? '/' + at + rest : './' + posix.relative(posix.dirname(page), at)
  if (file.startsWith('..') || !existsSync(join(site.root, file))) throw new Error(`${source}: ${href}: there is no such file`)
  return `${site.repository}/${statSync(join(site.root, file)).isDirectory() ? 'tree' : 'blob'}/${site.ref}/${file}${rest}`
}

// reference is a link to the comments of a package on the host that has those of all modules.
const reference = /^https:\/\/pkg\.go\.dev\/github\.com\/execbroker\/execbroker\/([^#]+)(#.*)?$/

function markdown(md) {
  md.core.ruler.push('repository', state => {
    const page = state.env.relativePath
    const source = site.sources[page]
    state.tokens.forEach((block, i) => {
      // The corner of a table names nothing.
      if (block.type === 'th_open' && !state.tokens[i + 1].content) block.tag = state.tokens[i + 2].tag = 'td'
      // Code in comments of Go is indented.
      if (block.type === 'code_block') Object.assign(block, { type: 'fence', tag: 'code', info: 'go', markup: '```' })
      // A policy of content without styles in pages: the alignment of cells is a class.
      const style = block.attrGet('style')
      if (style) {
        block.attrs = block.attrs.filter(([name]) => name !== 'style')
        block.attrJoin('class', style.replace('text-align:', 'align-'))
      }
      for (const token of block.children ?? []) {
        const name = { link_open: 'href', image: 'src' }[token.type]
        const href = name && token.attrGet(name)
        const local = href?.match(reference)
        if (local) token.attrSet(name, `/api/${local[1]}.md${local[2] ?? ''}`)
        else if (href && source && !/^([a-z]+:|#|\/)/.test(href)) token.attrSet(name, target(source, href, page))
      }
    })
  })
  const text = md.renderer.rules.text
  md.renderer.rules.text = (...args) => text(...args).replaceAll('{{', '&#123;&#123;') // is no template
  // A wide table scrolls by itself, also by keyboard.
  md.renderer.rules.table_open = (tokens, i) => {
    const number = tokens.slice(0, i + 1).filter(token => token.type === 'table_open').length
    return `<div class="table" tabindex="0" role="region" aria-label="Table ${number}"><table>\n`
  }
  md.renderer.rules.table_close = () => '</table></div>\n'
}

export default {
  title: 'execbroker',
  description: 'Run untrusted code in interchangeable sandboxes',
  lang: 'en',
  base: site.base,
  srcDir: 'pages',
  outDir: site.out,
  metaChunk: true,
  head: [
    ['link', { rel: 'icon', href: 'data:,' }],
    ['link', { rel: 'stylesheet', href: site.base + 'code.css' }],
  ],
  markdown: {
    html: false,
    attrs: { leftDelimiter: '⟦', rightDelimiter: '⟧', allowedAttributes: ['id'] }, // only the reference of packages has such
    anchor: { slugify: slug },
    languageAlias: { golang: 'go' },
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    codeTransformers: [colours],
    config: markdown,
  },
  themeConfig: {
    version: site.version,
    root: site.root_url,
    siteTitle: 'execbroker',
    nav: [
      { text: 'Quick start', link: '/guides/quick-start.md' },
      { text: 'API', link: '/api/index.md' },
      { text: 'Source', link: site.repository },
    ],
    sidebar: site.sidebar,
    outline: [2, 3],
    search: { provider: 'local' },
    externalLinkIcon: true,
  },
  buildEnd: ({ outDir }) => writeFileSync(join(outDir, 'code.css'), colours.getCSS()),
}
