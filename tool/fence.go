package tool

import (
	"slices"
	"strings"

	"github.com/execbroker/execbroker/executor"
)

// languageNames maps the names that models use to languages.
var languageNames = map[string]executor.Language{
	"python": executor.Python, "python3": executor.Python, "py": executor.Python, "py3": executor.Python, "ipython": executor.Python, "python-exec": executor.Python,
	"tool_code":  executor.Python, // the name that Gemini uses
	"javascript": executor.JavaScript, "js": executor.JavaScript, "node": executor.JavaScript, "nodejs": executor.JavaScript, "mjs": executor.JavaScript,
	"typescript": executor.TypeScript, "ts": executor.TypeScript, "mts": executor.TypeScript,
	"bash": Bash, "sh": Bash, "shell": Bash, "zsh": Bash,
}

// languageOf returns the language that a name means. Unknown names are returned unchanged.
func languageOf(name string) executor.Language {
	name = strings.ToLower(strings.TrimSpace(name))
	if l, ok := languageNames[name]; ok {
		return l
	}
	return executor.Language(name)
}

// block is a fenced block of Markdown.
type block struct {
	label string // the first word after the fence, in lower case
	code  string
}

// language returns the language of the label, or "" if it is not a language of the tool.
func (b block) language() executor.Language { return languageNames[b.label] }

// fence is a line that begins or ends a block.
type fence struct {
	at, next int    // where the line and the next line begin
	mark     string // the backquotes or tildes
	indent   string
	info     string // what follows the mark
}

// nextFence finds the first fence at or after position i, where a line begins.
func nextFence(text string, i int) (f fence, ok bool) {
	for i < len(text) {
		end := len(text)
		if n := strings.IndexByte(text[i:], '\n'); n >= 0 {
			end = i + n + 1
		}
		line := strings.TrimLeft(text[i:end], " \t")
		for _, c := range "`~" {
			if n := len(line) - len(strings.TrimLeft(line, string(c))); n >= 3 {
				return fence{i, end, line[:n], text[i : end-len(line)], strings.TrimSpace(line[n:])}, true
			}
		}
		i = end
	}
	return fence{}, false
}

// maxBlocks bounds the work: each block requires a scan of the rest.
const maxBlocks = 50

// unfence extracts the code from Markdown. If the first fence could be part of a program in
// language l, in a string or a comment, the text is not Markdown.
func unfence(text string, l executor.Language) (blocks []block) {
	first, ok := nextFence(text, 0)
	if !ok || encloser(text, l)(first.at) {
		return nil
	}
	if first.mark[0] == '~' && (strings.TrimSpace(text[:first.at]) != "" || !closes(text, first)) {
		return nil // ~~~x is an expression of Python and JavaScript
	}
	for f := first; ok && len(blocks) < maxBlocks; f, ok = nextFence(text, f.next) {
		if code, rest, found := strings.Cut(f.info, f.mark); found { // the whole block is on one line
			if strings.TrimSpace(rest) == "" {
				blocks = append(blocks, inline(code))
			}
			continue
		}
		label, _, _ := strings.Cut(f.info, " ")
		b := block{label: strings.ToLower(strings.Trim(label, "{}.:"))}
		inner := l
		if known := b.language(); known != "" {
			inner = known
		}
		end := closing(text, f, inner)
		b.code = strings.TrimSuffix(strings.TrimSuffix(text[f.next:end.at], "\n"), "\r")
		if f.indent != "" {
			b.code = strings.ReplaceAll(strings.TrimPrefix(b.code, f.indent), "\n"+f.indent, "\n")
		}
		blocks = append(blocks, b)
		f = end
	}
	return blocks
}

// inline returns a block within a line. Its first word may be its language.
func inline(code string) block {
	word, rest, found := strings.Cut(code, " ")
	if _, ok := languageNames[strings.ToLower(word)]; ok && found {
		return block{strings.ToLower(word), strings.TrimSpace(rest)}
	}
	return block{"", strings.TrimSpace(code)}
}

// ends reports whether f can end a block that begins with open.
func (f fence) ends(open fence) bool {
	return f.info == "" && f.mark[0] == open.mark[0] && len(f.mark) >= len(open.mark)
}

// closes reports whether the last line of text ends the block that begins with open.
func closes(text string, open fence) bool {
	text = strings.TrimRight(text, " \t\r\n")
	f, ok := nextFence(text, strings.LastIndexByte(text, '\n')+1)
	return ok && f.at > open.at && f.ends(open)
}

// closing finds the end of a block: the first fence that is not inside a string or comment of the
// code, or else the last fence, or else the end of the text.
func closing(text string, open fence, l executor.Language) fence {
	last := fence{at: len(text), next: len(text)}
	body := text[open.next:]
	inside := encloser(body, l)
	for f, ok := nextFence(body, 0); ok; f, ok = nextFence(body, f.next) {
		if !f.ends(open) {
			continue
		}
		last = fence{at: open.next + f.at, next: open.next + f.next}
		if !inside(f.at) {
			break
		}
	}
	return last
}

// encloser returns a function that reports whether the line at a position may be in a string or
// comment. It must be called with ascending positions.
func encloser(text string, l executor.Language) func(i int) bool {
	if l == executor.TypeScript {
		l = executor.JavaScript
	}
	if l != executor.JavaScript && l != Bash {
		t := scanPython(text)
		return t.inside
	}
	seen, odd, comment := 0, false, false
	return func(i int) bool {
		for line := range strings.Lines(text[seen:i]) {
			switch l {
			case executor.JavaScript: // only templates and comments span lines
				odd = odd || strings.Count(line, "`")%2 == 1 && !strings.HasPrefix(strings.TrimSpace(line), "```")
				comment = comment || strings.Contains(line, "/*")
			case Bash:
				odd = odd || strings.Contains(line, "<<") || quotes(line)%2 == 1 || strings.Count(line, `"`)%2 == 1
			}
		}
		seen = i
		return odd || comment
	}
}

// quotes counts the single quotes of a line that are not apostrophes.
func quotes(line string) (n int) {
	for i := range len(line) {
		if line[i] == '\'' && !(i > 0 && i+1 < len(line) && wordByte(line[i-1]) && wordByte(line[i+1])) {
			n++
		}
	}
	return n
}

// choose returns the code of the blocks that are meant, and its language if the blocks name it.
// Several blocks in the language are parts of one program.
func choose(blocks []block, want executor.Language, sure bool) (code string, l executor.Language) {
	pick := func(l executor.Language) (parts []string) {
		for _, b := range blocks {
			if b.language() == l {
				parts = append(parts, b.code)
			}
		}
		return parts
	}
	parts := pick(want)
	if len(parts) == 0 {
		parts, want = pick(""), "" // no label, or one that is not a known language
	}
	if len(parts) == 0 {
		i := slices.IndexFunc(blocks, func(b block) bool { return b.code != "" })
		l = blocks[max(i, 0)].language()
		parts = pick(l)
		if sure {
			l = ""
		}
		return strings.Join(parts, "\n"), l
	}
	return strings.Join(parts, "\n"), want
}
