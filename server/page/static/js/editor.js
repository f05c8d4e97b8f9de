// The editor of a cell.
import * as cm from "../npm/codemirror.js"

const t = cm.tags
const colours = cm.HighlightStyle.define([
  {tag: [t.keyword, t.operatorKeyword, t.modifier], color: "var(--keyword)"},
  {tag: [t.string, t.special(t.string), t.regexp], color: "var(--string)"},
  {tag: [t.number, t.bool, t.null, t.self], color: "var(--number)"},
  {tag: [t.comment], color: "var(--quiet)", fontStyle: "italic"},
  {tag: [t.definition(t.variableName), t.function(t.variableName), t.className, t.typeName], color: "var(--name)"},
])

const theme = cm.EditorView.theme({
  "&": {backgroundColor: "transparent", color: "var(--text)"},
  "&.cm-focused": {outline: "none"},
  ".cm-scroller": {font: "var(--mono)", overflow: "auto", maxHeight: "60vh"},
  ".cm-content": {padding: "10px 0", caretColor: "var(--accent)"},
  ".cm-cursor": {borderLeftColor: "var(--accent)"},
  ".cm-gutters": {backgroundColor: "transparent", color: "var(--quiet)", border: "none"},
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": {background: "var(--selection)"},
  ".cm-matchingBracket": {backgroundColor: "var(--selection)", outline: "none"},
  ".cm-tooltip": {background: "var(--raised)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "6px", overflow: "hidden"},
  ".cm-tooltip.cm-tooltip-autocomplete > ul": {font: "var(--mono)"},
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": {background: "var(--accent)", color: "var(--on-accent)"},
})

const languages = {
  python: () => [cm.python(), cm.indentUnit.of("    ")],
  javascript: () => cm.javascript(),
  typescript: () => cm.javascript({typescript: true}),
}

// editor makes an editor. words() returns names of other cells for completion; keys are commands by
// their names.
export function editor({text, language, label, words, keys, changed}) {
  const lang = new cm.Compartment()
  const of = name => languages[name]?.() || []
  const others = context => {
    const word = context.matchBefore(/[\p{L}_$][\p{L}\p{N}_$]*/u)
    return word && (context.explicit || word.to - word.from > 1) ? {from: word.from, options: words().map(label => ({label, type: "variable"})), validFor: /^[\p{L}\p{N}_$]*$/u} : null
  }
  const data = cm.EditorState.languageData.of(() => [{autocomplete: others}])
  const view = new cm.EditorView({
    doc: text,
    extensions: [
      lang.of(of(language)), data, cm.lineNumbers(), cm.history(), cm.drawSelection(), cm.indentOnInput(), cm.bracketMatching(), cm.closeBrackets(),
      cm.autocompletion(), cm.syntaxHighlighting(colours), theme,
      cm.EditorView.contentAttributes.of({"aria-label": label, "aria-describedby": "leave", spellcheck: "false", tabindex: "0"}),
      cm.EditorView.updateListener.of(u => u.docChanged && changed?.()),
      // Escape before Tab leaves the editor.
      cm.keymap.of([...Object.entries(keys).map(([key, run]) => ({key, run: () => (run(), true)})), ...cm.closeBracketsKeymap, ...cm.completionKeymap,
        {key: "Tab", run: cm.indentMore, shift: cm.indentLess}, ...cm.historyKeymap, ...cm.defaultKeymap]),
    ],
  })
  return {
    element: view.dom,
    get text() { return view.state.doc.toString() },
    set text(s) { view.dispatch({changes: {from: 0, to: view.state.doc.length, insert: s}}) },
    set language(name) { view.dispatch({effects: lang.reconfigure(of(name))}) },
    focus() { view.focus() },
    end() { view.destroy() },
  }
}
