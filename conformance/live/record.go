package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// exchangesDir is where exchanges are, below Options.Dir: a file for each.
const exchangesDir = "exchanges"

// maxExchanges bounds what is kept in memory and written.
const maxExchanges = 400

// recorder keeps exchanges: those of traps by their name, and of the others the first of each kind.
type recorder struct {
	scrub *scrubber

	mu    sync.Mutex
	texts map[string]string // by file
}

var notName = regexp.MustCompile(`[^A-Za-z0-9]+`)

// add records an exchange. Without a name it is called by what it is.
func (r *recorder) add(name string, req *http.Request, sent []byte, res *http.Response, got []byte) {
	path := r.scrub.path(req.URL)
	file := "trap-" + name
	if name == "" {
		file = strings.Trim(notName.ReplaceAllString(req.Method+" "+path, "-"), "-") + fmt.Sprintf("-%d", res.StatusCode)
	}
	file += ".txt"
	// Bodies first: they tell what has to be hidden elsewhere.
	request, answer := r.scrub.body(sent), r.scrub.body(got)
	text := fmt.Sprintf("%s %s\n%s%s\n%d\n%s%s", req.Method, path, r.scrub.header(req.Header), request, res.StatusCode, r.scrub.header(res.Header), answer)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.texts == nil {
		r.texts = map[string]string{}
	}
	switch old, seen := r.texts[file]; {
	case !seen && len(r.texts) < maxExchanges:
		r.texts[file] = text
	case seen && name != "": // a trap that asks more than once
		r.texts[file] = old + "\n" + text
	}
}

// write writes what was found. Nothing is written that has a secret in it.
func write(dir string, r *Result, rec *recorder) error {
	files := map[string][]byte{}
	rec.mu.Lock()
	for name, text := range rec.texts {
		files[filepath.Join(exchangesDir, name)] = []byte(text)
	}
	rec.mu.Unlock()
	r = rec.scrub.result(r)
	var suite, markdown bytes.Buffer
	err := errors.Join(r.Report.JSON(&suite), r.Report.Markdown(&markdown))
	result, jerr := json.MarshalIndent(r, "", "  ")
	if err = errors.Join(err, jerr); err != nil {
		return err
	}
	files["suite.json"], files["suite.md"], files["live.json"] = suite.Bytes(), markdown.Bytes(), result
	files["live.md"] = []byte(r.markdown())
	var errs []error
	for name, data := range files {
		// What was learned late is in what was recorded early.
		text := string(data)
		if filepath.Dir(name) == exchangesDir {
			text = rec.scrub.hide(text)
		}
		if rec.scrub.found(text) {
			errs = append(errs, fmt.Errorf("%s: not written, since a secret is in it", name))
			continue
		}
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return errors.Join(errs...)
}

// found reports whether a text has something in it that is known to be secret.
func (s *scrubber) found(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t, as := range s.secret {
		if as != ordinary && !strings.Contains(as, t) && strings.Contains(text, t) {
			return true
		}
	}
	return false
}

// result returns r with what is known to be secret replaced.
func (s *scrubber) result(r *Result) *Result {
	out, report := *r, *r.Report
	out.Report, out.Plan, out.Stopped = &report, s.hide(r.Plan, ordinary), s.hide(r.Stopped)
	out.Left, out.Traps = slices.Clone(r.Left), slices.Clone(r.Traps)
	for i := range out.Left {
		out.Left[i] = s.hide(out.Left[i])
	}
	for i := range out.Traps {
		out.Traps[i].Seen = s.hide(out.Traps[i].Seen)
	}
	report.Cases = slices.Clone(r.Report.Cases)
	for i := range report.Cases {
		l := &report.Cases[i]
		l.Reason, l.Log = s.hide(l.Reason), slices.Clone(l.Log)
		for j := range l.Log {
			l.Log[j] = s.hide(l.Log[j])
		}
	}
	return &out
}

// markdown is the report for people.
func (r *Result) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# A live run\n\nBegun %s, ended %s.\n\n```\n%s```\n\n", r.Started.Format("2006-01-02 15:04 MST"), r.Finished.Format("15:04 MST"), r.Plan)
	fmt.Fprintf(&b, "- made: %d sandboxes, %.0f seconds of sandboxes, at most %.4f USD\n", r.Spent.Sandboxes, r.Spent.Seconds, r.Spent.USD)
	fmt.Fprintf(&b, "- removed before: %d of earlier runs\n- left: %d %s\n", r.Before, len(r.Left), strings.Join(r.Left, " "))
	if r.Stopped != "" {
		fmt.Fprintf(&b, "- stopped: %s\n", r.Stopped)
	}
	fmt.Fprintf(&b, "- suite: conformant %t, %v; see suite.md\n\n", r.Report.Conformant, r.Report.Totals)
	b.WriteString("| Trap | Expected | Seen | |\n|---|---|---|---|\n")
	cell := func(s string) string { return strings.NewReplacer("|", `\|`, "\n", " ").Replace(s) }
	for _, l := range slices.SortedFunc(slices.Values(r.Traps), func(a, b TrapLine) int { return strings.Compare(a.Name, b.Name) }) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", l.Name, cell(l.Expected), cell(l.Seen), l.Outcome)
	}
	return b.String()
}
