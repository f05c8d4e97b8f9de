package tool

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// QuoteName returns a name that code has chosen, such as that of a file, as a model may see it. A
// name with line breaks, escapes, marks that change the direction of text, or anything else that is
// not visible, is written as a string of Go: "a\nb". Otherwise it could look like text of the tool,
// or like another name. So is a name that begins with a quotation mark, which makes the form
// unambiguous: UnquoteName returns the name.
func QuoteName(name string) string {
	if name == "" || name[0] == '"' || strings.TrimSpace(name) != name || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

// UnquoteName returns the name that QuoteName has made quoted of, and other names unchanged.
func UnquoteName(quoted string) string {
	if strings.HasPrefix(quoted, `"`) {
		if name, err := strconv.Unquote(quoted); err == nil {
			return name
		}
	}
	return quoted
}

// quoteNames returns names for a list in a text.
func quoteNames(names []string) []string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = QuoteName(n)
	}
	return quoted
}
