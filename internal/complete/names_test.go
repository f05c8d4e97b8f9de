package complete

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
)

func TestNames(t *testing.T) {
	for text, want := range map[string]string{
		"ma": "|ma", "x = math.sq": "math|sq", "a.b.": "a.b|", "f(é": "|é", "1 + ": "none", "": "none", "2": "none", "f().x": "none", "'a'.x": "none",
		"a\nb": "|b", "a.\n": "none", "$a": "none",
	} {
		got := "none"
		if q, ok := Names(executor.Python, text, len(text)); ok {
			got = q.name + "|" + text[q.Start:]
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	if _, ok := Names("r", "a", 1); ok {
		t.Error("a language that is not known")
	}
}

func TestExplain(t *testing.T) {
	for text, want := range map[string]string{
		"math.sq|rt": "math.sqrt", "|math": "math", "ma|th.sqrt": "math", "f(1, |": "f", "a.f(g(1), |": "a.f", "f(g(|": "g", "(|": "", "1|": "", "f()|": "", "|": "", "f((1, |2": "",
	} {
		at := strings.IndexByte(text, '|')
		q, ok := Explain(executor.Python, strings.Replace(text, "|", "", 1), at, false)
		if q.name != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", text, q.name, ok, want)
		}
	}
}

// FuzzNames asks about any text: what goes into code is a name, so that it runs nothing of the
// text.
func FuzzNames(f *testing.F) {
	f.Add("x = math.sq", 11)
	f.Add("f(g(1), '\u2028", 8)
	f.Fuzz(func(t *testing.T, text string, at int) {
		if at < 0 || at > len(text) {
			return
		}
		for _, l := range []executor.Language{executor.Python, executor.JavaScript} {
			for _, ask := range []func() (Question, bool){
				func() (Question, bool) { return Names(l, text, at) },
				func() (Question, bool) { return Explain(l, text, at, true) },
			} {
				q, ok := ask()
				if ok && (q.name != "" && !wholeName.MatchString(q.name) || q.Start < 0 || q.Start > at || strings.ContainsAny(q.name, "\n'\"()`")) {
					t.Errorf("%q at %d: got %+v", text, at, q)
				}
			}
		}
		Found([]byte(text))
		Explained([]byte(text))
	})
}
