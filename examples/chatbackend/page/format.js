// formatted reports whether an answer looks like Markdown. Plain sentences do not.
export const formatted = text => /[*_`#|~<>[\]\\]|^ *([-+]|\d+[.)])\s/m.test(text)
