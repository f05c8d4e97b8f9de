package tool

import (
	"bytes"
	"io"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// The limits of a table that is read from HTML.
const (
	maxTableHTML  = 4 << 20 // bytes
	maxTableCells = 50_000  // including the cells of spans
	maxAround     = 200     // bytes of text around the table
)

// table reads HTML that is one table with little text around it, and writes it as Markdown without
// padding. Tables of numbers take a third of their size in HTML, and Python's own text form of them
// is folded and cut. For anything else ok is false.
func table(data []byte) (markdown string, ok bool) {
	if len(data) > maxTableHTML || !bytes.Contains(data, []byte("<table")) {
		return "", false
	}
	r := tableReader{spans: map[int]int{}}
	z := html.NewTokenizer(bytes.NewReader(data))
	z.SetMaxBuf(maxTableHTML)
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			if z.Err() != io.EOF || r.bad || r.state != after || len(r.rows) == 0 {
				return "", false
			}
			return r.markdown(), true
		}
		if r.token(kind, z); r.bad {
			return "", false
		}
	}
}

// The positions of a tableReader.
const (
	before = iota
	within
	after
)

// tableReader reads one table from HTML.
type tableReader struct {
	state  int
	rows   [][]string
	spans  map[int]int // by column: the number of further rows that a cell from above covers
	cell   *strings.Builder
	width  int // width of the cell in columns
	height int // height of the cell in rows
	skip   atom.Atom
	around strings.Builder
	cells  int
	bad    bool
}

func (r *tableReader) token(kind html.TokenType, z *html.Tokenizer) {
	if kind == html.TextToken {
		r.text(string(z.Text()))
		return
	}
	if kind == html.CommentToken || kind == html.DoctypeToken {
		return
	}
	name, more := z.TagName()
	tag, end := atom.Lookup(name), kind == html.EndTagToken
	switch tag {
	case atom.Style, atom.Script, atom.Svg:
		if r.skip == 0 && kind == html.StartTagToken {
			r.skip = tag
		} else if end && r.skip == tag {
			r.skip = 0
		}
	case atom.Table:
		switch {
		case !end && r.state == before:
			r.state = within
		case end && r.state == within:
			r.endCell()
			r.state = after
		default: // a second table, or a nested one
			r.bad = true
		}
	case atom.Tr:
		if r.state == within {
			r.endCell()
			if !end {
				r.rows = append(r.rows, nil)
				r.fill()
			}
		}
	case atom.Td, atom.Th:
		if r.state == within {
			r.endCell()
			if !end {
				r.begin(z, more)
			}
		}
	case atom.Br:
		r.text(" ")
	}
}

// begin begins a cell.
func (r *tableReader) begin(z *html.Tokenizer, more bool) {
	if len(r.rows) == 0 {
		r.rows = append(r.rows, nil)
	}
	r.cell, r.width, r.height = &strings.Builder{}, 1, 1
	for more {
		var key, value []byte
		key, value, more = z.TagAttr()
		n, err := strconv.Atoi(string(value))
		if err != nil || n < 1 || n > maxTableCells {
			continue
		}
		switch string(key) {
		case "colspan":
			r.width = n
		case "rowspan":
			r.height = n
		}
	}
}

// endCell adds the cell to its row, followed by empty cells if it covers several columns.
func (r *tableReader) endCell() {
	if r.cell == nil {
		return
	}
	row := &r.rows[len(r.rows)-1]
	for i := range r.width {
		if r.height > 1 {
			r.spans[len(*row)] = r.height - 1
		}
		text := ""
		if i == 0 {
			text = strings.Join(strings.Fields(r.cell.String()), " ")
		}
		if r.add(text); r.bad {
			return
		}
	}
	r.cell = nil
	r.fill()
}

// fill adds empty cells where cells of the rows above cover the current row.
func (r *tableReader) fill() {
	row := &r.rows[len(r.rows)-1]
	for !r.bad && r.spans[len(*row)] > 0 {
		r.spans[len(*row)]--
		r.add("")
	}
}

func (r *tableReader) add(text string) {
	row := &r.rows[len(r.rows)-1]
	*row = append(*row, strings.ReplaceAll(text, "|", `\|`))
	if r.cells++; r.cells > maxTableCells {
		r.bad = true
	}
}

func (r *tableReader) text(s string) {
	switch {
	case r.skip != 0:
	case r.cell != nil:
		r.cell.WriteString(s)
	default:
		if s = strings.TrimSpace(s); s != "" {
			r.around.WriteString(s + " ")
			r.bad = r.bad || r.around.Len() > maxAround
		}
	}
}

// markdown writes the rows. The first row is the header.
func (r *tableReader) markdown() string {
	columns := 0
	for _, row := range r.rows {
		columns = max(columns, len(row))
	}
	if columns*len(r.rows) > 2*maxTableCells {
		columns = len(r.rows[0])
	}
	var b strings.Builder
	for i, row := range r.rows {
		b.WriteString("|" + strings.Join(row, "|") + strings.Repeat("|", max(columns-len(row), 0)) + "|\n")
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", columns) + "\n")
		}
	}
	b.WriteString(strings.TrimSpace(r.around.String()))
	return b.String()
}
