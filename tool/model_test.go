package tool_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/tool"
)

func TestForModel(t *testing.T) {
	const gif = "GIF89a..."
	csv := tool.File{Name: "out/a.csv", Type: "text/csv", Size: 5, Base64: []byte("<a>,b")}
	tests := map[string]struct {
		out    tool.Output
		files  []string
		want   string
		images int
		failed bool
	}{
		"printed": {out: tool.Output{Success: true, Stdout: "a < b && c\n"}, want: "a < b && c"},
		"nothing": {out: tool.Output{Success: true}, want: "The code ran to its end and printed nothing."},
		"value":   {out: tool.Output{Success: true, Stdout: "x\n", ReturnValue: map[string]any{"<b>": "&"}}, want: "stdout:\nx\n\nvalue:\n{\"<b>\":\"&\"}"},
		"raw":     {out: tool.Output{Success: true, ReturnValue: json.RawMessage(`"<b>"`)}, want: "value:\n\"<b>\""},
		"text":    {out: tool.Output{Success: true, ReturnValue: "<class 'int'>"}, want: "value:\n<class 'int'>"},
		"failed":  {out: tool.Output{Stderr: "[note]\n", Error: "E: <x>"}, want: "stderr:\n[note]\n\nerror:\nE: <x>", failed: true},
		"images": {
			out:  tool.Output{Success: true, Images: []tool.Image{{Type: "image/png", Base64: []byte(png)}, {Type: "image/svg+xml", Base64: []byte("<svg/>")}}},
			want: "images:\n1. image/png, 11 bytes\n2. image/svg+xml, 6 bytes, which models do not take", images: 1,
		},
		"file-by-reference": {out: tool.Output{Success: true, Files: []tool.File{csv}}, want: "files:\n- out/a.csv (text/csv, 5 bytes)"},
		"file-asked-for":    {out: tool.Output{Success: true, Files: []tool.File{csv}}, files: []string{"[", "*/*.csv"}, want: "files:\n- out/a.csv (text/csv, 5 bytes)\n\nfile out/a.csv:\n<a>,b"},
		"file-of-another":   {out: tool.Output{Success: true, Files: []tool.File{csv}}, files: []string{"*.csv"}, want: "files:\n- out/a.csv (text/csv, 5 bytes)"},
		"file-without":      {out: tool.Output{Success: true, Files: []tool.File{{Name: "a", Type: "text/plain", Size: 9}}}, files: []string{"a"}, want: "files:\n- a (text/plain, 9 bytes)\n\nfile a:\n[the content is too large]"},
		"file-of-bytes":     {out: tool.Output{Success: true, Files: []tool.File{{Name: "a", Type: "x/y", Size: 2, Base64: []byte("\x00\xff")}}}, files: []string{"a"}, want: "files:\n- a (x/y, 2 bytes)\n\nfile a:\n[the content is not text]"},
		"file-of-image":     {out: tool.Output{Success: true, Files: []tool.File{{Name: "a", Type: "image/gif", Size: 9, Base64: []byte(gif)}}}, files: []string{"a"}, want: "files:\n- a (image/gif, 9 bytes)\n\nfile a:\n[attached as an image]", images: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := test.out.ForModel(test.files...)
			if a.Text != test.want || len(a.Images) != test.images || a.Failed != test.failed {
				t.Errorf("got %+v, want text %q and %d images", a, test.want, test.images)
			}
		})
	}
}

func TestAnswerForms(t *testing.T) {
	a := tool.Output{Success: true, Stdout: "<x>\n", Images: []tool.Image{{Type: "image/png", Base64: []byte(png)}, {Type: "image/gif", Base64: []byte("GIF8")}}}.ForModel()
	said, shown := a.OpenAI()
	response, parts := a.Gemini()
	golden(t, "answer.json", map[string]any{
		"openai":           []any{map[string]any{"role": "tool", "content": said}, map[string]any{"role": "user", "content": shown}},
		"openai-responses": map[string]any{"type": "function_call_output", "output": a.OpenAIResponses()},
		"anthropic":        map[string]any{"type": "tool_result", "is_error": a.Failed, "content": a.Anthropic()},
		"gemini":           []any{map[string]any{"functionResponse": map[string]any{"response": response}}, parts},
	})
	a = tool.Output{Error: "E"}.ForModel()
	if said, shown := a.OpenAI(); said != "error:\nE" || shown != nil {
		t.Errorf("got %q, %v, want no message without images", said, shown)
	}
	if response, parts := a.Gemini(); response != (tool.GeminiResponse{Error: "error:\nE"}) || parts != nil {
		t.Errorf("got %+v, %v", response, parts)
	}
}

// A model gets a few words about a chart and a file, not their contents.
func TestForModelIsShort(t *testing.T) {
	big := []byte(png + strings.Repeat("x", 1<<20))
	out := tool.Output{Success: true, Images: []tool.Image{{Type: "image/png", Base64: big}}, Files: []tool.File{{Name: "a.csv", Type: "text/csv", Size: int64(len(big)), Base64: big}}}
	if a := out.ForModel(); len(a.Text) > 200 || len(a.Images) != 1 {
		t.Errorf("got %d bytes and %d images", len(a.Text), len(a.Images))
	}
	if a := out.ForModel("*"); len(a.Text) > 70<<10 {
		t.Errorf("got %d bytes of a file that was asked for", len(a.Text))
	}
}

func TestTablesAreMarkdown(t *testing.T) {
	frame := `<div><style scoped>.dataframe tbody { color: red }</style>
<table border="1" class="dataframe"><thead><tr style="text-align: right;"><th></th><th>a &amp; b</th><th>c|d</th></tr></thead>
<tbody><tr><th>0</th><td>1</td><td>x
 y</td></tr><tr><th>1</th><td>2</td><td>&lt;b&gt;</td></tr></tbody></table><p>2 rows × 2 columns</p></div>`
	tests := map[string]struct{ html, want string }{
		"frame":   {frame, "||a & b|c\\|d|\n|---|---|---|\n|0|1|x y|\n|1|2|<b>|\n2 rows × 2 columns"},
		"spans":   {"<table><tr><th rowspan=2>k</th><th colspan=2>v</th></tr><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td><td>3</td></tr></table>", "|k|v||\n|---|---|---|\n||a|b|\n|1|2|3|\n"},
		"short":   {"<table><tr><td>1<td>2<tr><td>3</table>", "|1|2|\n|---|---|\n|3||\n"},
		"no-rows": {"<table></table>", "plain"},
		"two":     {"<table><tr><td>1</table><table><tr><td>2</table>", "plain"},
		"nested":  {"<table><tr><td><table><tr><td>1</table></table>", "plain"},
		"open":    {"<table><tr><td>1", "plain"},
		"text":    {"<table><tr><td>1</table>" + strings.Repeat("a lot to read ", 20), "plain"},
		"none":    {"<b>x</b>", "plain"},
		"huge":    {"<table><tr>" + strings.Repeat("<td colspan=50000 rowspan=50000>x", 10) + "</table>", "plain"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bundle := executor.MIMEBundle{"text/html": executor.Bytes(test.html), "text/plain": executor.Bytes("plain")}
			r := ok(func(r *executor.Result) {
				r.Outputs = []executor.Output{{Data: bundle}, {Main: true, Data: bundle}}
			})
			out := tool.Report(tool.Outcome{Result: r}, fake.All(), tool.Options{})
			if out.ReturnValue != test.want {
				t.Errorf("got value %q, want %q", out.ReturnValue, test.want)
			}
			if want := strings.TrimSuffix(test.want, "\n") + "\n"; out.Stdout != want {
				t.Errorf("got stdout %q, want %q", out.Stdout, want)
			}
		})
	}
}

// A table is never much larger than the HTML that it was made from.
func FuzzTable(f *testing.F) {
	f.Add("<table><tr><th rowspan=2>k</th><th colspan=2>v</th></tr><tr><th>a</th></tr></table>")
	f.Add("<table><caption>c<tr><td><br>|</table>x")
	f.Add("<table><tr><td colspan=49999><tr><td></table>")
	f.Fuzz(func(t *testing.T, html string) {
		r := ok(func(r *executor.Result) {
			r.Outputs = []executor.Output{{Main: true, Data: executor.MIMEBundle{"text/html": executor.Bytes(html), "text/plain": executor.Bytes("plain")}}}
		})
		const most = 2000
		out := tool.Report(tool.Outcome{Result: r}, fake.All(), tool.Options{MaxOutput: most})
		if s, _ := out.ReturnValue.(string); len(s) > most+200 {
			t.Errorf("got %d bytes", len(s))
		}
	})
}
