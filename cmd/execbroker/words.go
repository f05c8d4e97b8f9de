package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// The limits of completion.
const (
	maxWords   = 5000 // names that are remembered
	maxChoices = 50   // names that are shown
)

// knownWords are the names of each language for Tab.
var knownWords = map[executor.Language]string{
	executor.Python: `False None True and as assert async await break class continue def del elif else except finally for from global if
		import in is lambda match nonlocal not or pass raise return try while with yield abs all any bool bytearray bytes callable chr
		classmethod dict dir divmod enumerate eval exec filter float format frozenset getattr globals hasattr hash help hex id input int
		isinstance issubclass iter len list locals map max min next object open ord pow print property range repr reversed round set
		setattr slice sorted staticmethod str sum super tuple type vars zip __file__ __name__ Exception IndexError KeyError TypeError
		ValueError RuntimeError`,
	executor.JavaScript: `async await break case catch class const continue default delete else export extends false finally for function
		if import instanceof let new null return static super switch this throw true try typeof undefined while yield Array Boolean
		Date Error JSON Map Math Number Object Promise RegExp Set String Symbol console globalThis parseFloat parseInt require
		setTimeout`,
}

var (
	wordForm = regexp.MustCompile(`[\pL_$][\pL\pN_$]{2,}`)
	lastWord = regexp.MustCompile(`[\pL_$][\pL\pN_$]*$`)
)

// words are the names that Tab completes: those of the language and those that were typed. The
// sandbox is not asked, because that would be a run with an untrusted answer.
type words struct {
	known []string
	typed []string // the newest is last
}

func newWords(l executor.Language) *words {
	if l == executor.TypeScript {
		l = executor.JavaScript
	}
	return &words{known: strings.Fields(knownWords[l])}
}

// learn adds the names in code that was typed.
func (w *words) learn(code string) {
	for _, name := range wordForm.FindAllString(code, maxWords) {
		if len(name) <= maxShownName && !slices.Contains(w.known, name) && !slices.Contains(w.typed, name) {
			w.typed = append(w.typed, name)
		}
	}
	if over := len(w.typed) - maxWords; over > 0 {
		w.typed = slices.Clone(w.typed[over:])
	}
}

// maxShownName is the longest name that is shown, in bytes.
const maxShownName = 60

// beginning returns the names that begin with part.
func (w *words) beginning(part string) []string {
	return having(part, slices.Concat(w.known, w.typed))
}

// having returns the names that begin with part, sorted and without duplicates.
func having(part string, names []string) (found []string) {
	for _, n := range names {
		if strings.HasPrefix(n, part) {
			found = append(found, n)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// complete returns what Tab inserts after part: the common continuation of all names that begin
// with part, and end if there is only one name. If that is nothing, choices has the names.
func completeFrom(part string, found []string, end string) (insert string, choices []string) {
	if len(found) == 0 {
		return "", nil
	}
	common := found[0]
	for _, n := range found {
		for !strings.HasPrefix(n, common) {
			common = cut(common, len(common)-1)
		}
	}
	if len(found) == 1 {
		common += end
	}
	if common != part {
		return common[len(part):], nil
	}
	if len(found) > maxChoices {
		found = append(found[:maxChoices:maxChoices], "...")
	}
	return "", found
}

// tab indents at the beginning of a line. Elsewhere it completes the name of a command, of a file
// of this machine, or of the code.
func (r *repl) tab(before string) (insert string, choices []string) {
	if strings.TrimSpace(before) == "" {
		return strings.Repeat(" ", 4), nil
	}
	if line, ok := strings.CutPrefix(before, "%"); ok && len(r.lines) == 0 {
		name, argument, within := strings.Cut(line, " ")
		if !within {
			var names []string
			for _, c := range replCommands {
				names = append(names, c.name)
			}
			return completeFrom(line, having(line, names), " ")
		}
		if name == "put" || name == "run" {
			return completeFile(argument)
		}
		return "", nil
	}
	part := lastWord.FindString(before)
	if part == "" {
		return "", nil
	}
	return completeFrom(part, r.words.beginning(part), "")
}

// completeFile completes the name of a file of this machine. It leaves out names with characters
// that splitWords or a terminal would interpret.
func completeFile(part string) (insert string, choices []string) {
	dir, _ := filepath.Split(part)
	entries, err := os.ReadDir(filepath.Clean("./" + dir))
	if filepath.IsAbs(part) {
		entries, err = os.ReadDir(dir)
	}
	if err != nil {
		return "", nil
	}
	var names []string
	for _, e := range entries {
		name := dir + e.Name()
		if plain(name) != name || strings.ContainsAny(name, " '\"") {
			continue
		}
		if e.IsDir() {
			name += string(filepath.Separator)
		}
		names = append(names, name)
	}
	end := " "
	found := having(part, names)
	if len(found) == 1 && strings.HasSuffix(found[0], string(filepath.Separator)) {
		end = ""
	}
	return completeFrom(part, found, end)
}
