package tool

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// distributions maps Python modules to packages that have other names.
var distributions = map[string]string{
	"bs4": "beautifulsoup4", "cv2": "opencv-python", "dateutil": "python-dateutil", "docx": "python-docx", "fitz": "pymupdf", "PIL": "pillow",
	"pptx": "python-pptx", "skimage": "scikit-image", "sklearn": "scikit-learn", "yaml": "pyyaml",
}

var (
	noPythonModule = regexp.MustCompile(`No module named '([A-Za-z0-9_]+)`)
	noScriptModule = regexp.MustCompile(`Cannot find (?:module|package) '([^'\s/]+|@[^'\s/]+/[^'\s/]+)'`)
	noAttribute    = regexp.MustCompile(`'(?:DataFrame|Series)' object has no attribute '`)
	noName         = regexp.MustCompile(`(?:name ['"](\w+)['"] is not defined|^(\w+) is not defined)`)
	entity         = regexp.MustCompile(`&(?:lt|gt|amp|quot|apos|nbsp|#39|#34|#x27);`)
	cutOff         = regexp.MustCompile(`was never closed|unterminated|[Uu]nexpected (?:EOF|end of)|expected an indented block|Unterminated|EOF while scanning|Unexpected token$`)
	endless        = regexp.MustCompile(`was never closed|triple-quoted|template|[Uu]nexpected (?:EOF|end of)`)

	// The messages of Python on a platform without threads and processes, such as WebAssembly.
	noProcesses = regexp.MustCompile(`can't start new thread|does not support processes|No module named '_(?:multiprocessing|posixsubprocess|posixshmem)'|lacks multiprocessing`)
	noNode      = regexp.MustCompile(`^(?:require|process|module|exports|Buffer|__dirname|__filename|global) is not defined|there are no modules in this sandbox`)
)

// networkErrors are the exception types of the common clients.
var networkErrors = []string{"URLError", "ConnectionError", "ConnectionRefusedError", "ConnectTimeout", "gaierror", "MaxRetryError", "NewConnectionError", "ConnectError", "NameResolutionError"}

// hint says how to go on after a frequent error. It is empty if none is known.
func (w *writer) hint() string {
	switch {
	case w.res.Status == executor.StatusTimedOut && max(w.r.Input.Timeout, w.o.Timeout) >= w.o.MaxTimeout:
		return "do less in one call, and look for a loop without end."
	case w.res.Status == executor.StatusTimedOut:
		return fmt.Sprintf(`ask for a longer "timeout", up to %s, if the work needs it; otherwise do less in one call, and look for a loop without end.`, inSeconds(w.o.MaxTimeout))
	case w.res.Reason == executor.ReasonMemory:
		return "work on the data in pieces, and keep less of it at once."
	case w.res.Reason == executor.ReasonOutput:
		return "print a summary, or write to a file."
	case w.res.Status != executor.StatusFailed:
		return ""
	case w.r.Input.Language == Bash && w.res.ExitCode == 127:
		return "there is no such command in the sandbox."
	case w.res.Exception == nil:
		return ""
	}
	e, code := w.res.Exception, w.r.Input.Code
	kind := e.Type[strings.LastIndexByte(e.Type, '.')+1:]
	message := plain([]byte(e.Message))
	if kind == "SyntaxError" || kind == "IndentationError" || kind == "TabError" {
		return w.syntax(message)
	}
	switch {
	case noProcesses.MatchString(message):
		return "this Python starts neither threads nor processes. Do the work one after the other."
	case w.r.Input.Language != executor.Python && noNode.MatchString(message):
		return "this is JavaScript without Node: there is no require, no import and no process. Use what the language itself has."
	case kind == "ModuleNotFoundError" || kind == "ImportError" || noScriptModule.MatchString(message):
		return w.missingModule(message)
	case kind == "KeyError" || noAttribute.MatchString(message):
		return "there is no such key or column. Print what is there before you use it: print(df.columns.tolist()) for a table, print(list(d)) for a dictionary."
	case kind == "FileNotFoundError" || strings.Contains(message, "ENOENT"):
		return w.missingFile()
	case kind == "NameError" || kind == "ReferenceError":
		return w.missingName(message)
	case kind == "EOFError" && strings.Contains(code, "input("):
		return "there is nobody to answer input(). Put the values into the code."
	case slices.Contains(networkErrors, kind) && w.o.Spec.Network.Mode != executor.NetworkFull:
		if w.o.Spec.Network.Mode == executor.NetworkAllowlist {
			return "the code reaches these hosts only: " + strings.Join(w.o.Spec.Network.Hosts, ", ") + "."
		}
		return "the code has no network. Work with what is in the call, or answer without."
	case kind == "PermissionError":
		return "write below " + executor.Workdir + " or in the temporary directory."
	case kind == "RuntimeError" && strings.Contains(message, "running event loop") && w.c.HasFor(w.r.Input.Language, executor.FeatureTopLevelAwait):
		return "a loop is running already: await at the top level instead."
	case kind == "MemoryError":
		return "work on the data in pieces, and keep less of it at once."
	}
	return ""
}

// syntax says what in the code is not valid. It checks the line of the error first, and then the
// whole code.
func (w *writer) syntax(message string) string {
	code := w.r.Input.Code
	lines := strings.Split(code, "\n")
	n := w.res.Exception.Line
	line := ""
	if 0 < n && n <= len(lines) {
		line = lines[n-1]
	}
	first, _, _ := strings.Cut(strings.TrimSpace(code), "\n")
	for _, look := range []struct {
		in   string
		what []string
		hint string
	}{
		{line, []string{"\u201c", "\u201d", "\u201e", "\u2018", "\u2019", "\u00ab", "\u00bb"}, "line %d has typographic quotes. Write straight ones."},
		{line, []string{"\u00a0", "\u2007", "\u202f", "\u3000", "\u2003", "\u2002", "\u2009"}, "line %d has a space of another kind, such as a non-breaking one. Write ordinary spaces."},
		{line, []string{"\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad"}, "line %d has a character that is not visible, such as a zero-width space. Write the line again without it."},
		{line, []string{"\u2013", "\u2014", "\u2212"}, "line %d has a dash of another kind. Write -."},
		{line, []string{">>>"}, "line %d begins with the prompt of an interactive session. Pass the program alone, without >>> and without its output."},
	} {
		if slices.ContainsFunc(look.what, func(s string) bool { return strings.Contains(look.in, s) }) && (look.what[0] != ">>>" || strings.HasPrefix(strings.TrimSpace(line), ">>>")) {
			return fmt.Sprintf(look.hint, n)
		}
	}
	switch {
	case entity.MatchString(code):
		return "the code has entities of HTML, such as &lt;. Write the characters themselves."
	case strings.Contains(code, "```"):
		return "pass the program alone, without Markdown."
	case languageNames[strings.ToLower(strings.TrimSpace(first))] != "":
		return "the first line is the name of a language. Pass the program alone."
	case cutOff.MatchString(message) && (n == 0 || strings.TrimSpace(strings.Join(lines[min(n, len(lines)):], "")) == "" || endless.MatchString(message)):
		return "the program seems to be cut off at its end. Pass all of it; if it is long, divide it into several calls."
	}
	return ""
}

func (w *writer) missingModule(message string) string {
	name, l := "", w.c.Interpreter(w.r.Input.Language)
	if m := noPythonModule.FindStringSubmatch(message); m != nil {
		if name = m[1]; strings.HasPrefix(name, "_") {
			return "" // a part of Python itself that is missing here
		}
		name = cmp.Or(distributions[name], name)
	} else if m := noScriptModule.FindStringSubmatch(message); m != nil {
		name = m[1]
	}
	one, ok := packageName(l, name)
	if !ok {
		return ""
	}
	allowed := w.o.Packages == nil || hasPackage(w.o.Packages[l], l, one)
	installed := hasPackage(w.r.Input.Packages, l, one)
	switch {
	case !slices.Contains(w.o.installs(w.c), l):
		return "packages cannot be installed here. Use what is there, first of all the standard library."
	case installed:
		return "the package was installed in this call; its module may have another name."
	case allowed:
		return fmt.Sprintf(`call again with "packages": [%q].`, name)
	}
	return fmt.Sprintf("%s is not allowed here. Use the standard library or one of: %s.", name, strings.Join(w.o.Packages[l], ", "))
}

// maxNames is the largest number of file names in a hint.
const maxNames = 30

func (w *writer) missingFile() string {
	there := w.r.There
	if there == nil {
		return "look at what is in " + executor.Workdir + " first. Relative names begin there."
	}
	if len(there) == 0 && w.o.takesFiles(w.c) {
		return executor.Workdir + ` is empty. Pass files in the argument "files", or make them first.`
	}
	if len(there) == 0 {
		return executor.Workdir + " is empty. Make the file first."
	}
	more := ""
	if n := len(there) - maxNames; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
		there = there[:maxNames]
	}
	var names []string
	for _, n := range there {
		names = append(names, fmt.Sprintf("%q", n))
	}
	return fmt.Sprintf("in %s there are: %s%s.", executor.Workdir, cut(strings.Join(names, ", "), maxCause), more)
}

func (w *writer) missingName(message string) string {
	m := noName.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	name := m[1] + m[2]
	first, _, _ := strings.Cut(strings.TrimSpace(w.r.Input.Code), "\n")
	switch {
	case entity.MatchString(w.r.Input.Code) && entity.MatchString("&"+name+";"):
		return "the code has entities of HTML, such as &lt;. Write the characters themselves."
	case strings.TrimSpace(first) == name && languageNames[strings.ToLower(name)] != "":
		return "the first line is the name of a language. Pass the program alone."
	case w.r.Lost && w.r.Kept.Restored():
		return fmt.Sprintf("the checkpoint that this sandbox goes on from does not have it. Define %s again, with its imports.", name)
	case w.r.Lost || w.beganAnew():
		return fmt.Sprintf("this run began without variables of earlier calls. Define %s again, with its imports.", name)
	}
	return fmt.Sprintf("define or import %s first.", name)
}
