// What the page uses of CodeMirror.
export {autocompletion, closeBrackets, closeBracketsKeymap, completeAnyWord, completionKeymap} from "@codemirror/autocomplete"
export {defaultKeymap, history, historyKeymap, indentLess, indentMore} from "@codemirror/commands"
export {javascript} from "@codemirror/lang-javascript"
export {python} from "@codemirror/lang-python"
export {bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting} from "@codemirror/language"
export {Compartment, EditorState} from "@codemirror/state"
export {drawSelection, EditorView, keymap, lineNumbers} from "@codemirror/view"
export {tags} from "@lezer/highlight"
