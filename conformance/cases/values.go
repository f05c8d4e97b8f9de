package cases

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// pngHead begins every PNG file.
const pngHead = "\x89PNG\r\n\x1a\n"

// valueCases are about values and displays.
func valueCases() []Case {
	rich := executor.FeatureRichOutput
	return []Case{
		{
			ID: "values/last-expression", Feature: rich, Programs: []string{"value"},
			Doc: "The value of the last expression is the one output with Main set, in the result and in the events.",
			Positive: func(t *T) {
				res, outs := t.outputs(t.Shared(), t.Program("value"))
				if len(outs) != 1 || !outs[0].Main || string(outs[0].Data["text/plain"]) != "42" {
					t.Errorf("got %v, want one main output with text/plain 42", outs)
				}
				t.printed(res, "")
			},
			Negative: noOutputs("value"),
		},
		{
			ID: "values/none", Feature: rich, Programs: []string{"value-none"},
			Doc: "Code that ends without a value has no output.",
			Positive: func(t *T) {
				noneOf(t, "outputs", t.outputsOf(t.Shared(), t.Program("value-none")))
			},
			Negative: noOutputs("value-none"),
		},
		{
			ID: "values/json", Feature: rich, Programs: []string{"value-json"},
			Doc: "A value made of the language's plain containers has the type application/json, whose content is the text.",
			Positive: func(t *T) {
				outs := t.outputsOf(t.Shared(), t.Program("value-json"))
				if len(outs) != 1 {
					t.Fatalf("got %v, want one output", outs)
				}
				var got any
				t.must(json.Unmarshal(outs[0].Data["application/json"], &got), "application/json")
				want := map[string]any{"name": "渐", "list": []any{1.0, 2.5, true, nil}}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("got %v, want %v", got, want)
				}
			},
			Negative: noOutputs("value-json"),
		},
		{
			ID: "values/bundle", Feature: rich, Programs: []string{"value-rich"},
			Doc: "A value that can show itself in several ways is one output with all of them, images as bytes.",
			Positive: func(t *T) {
				outs := t.outputsOf(t.Shared(), t.Program("value-rich"))
				if len(outs) != 1 || !outs[0].Main {
					t.Fatalf("got %v, want one main output", outs)
				}
				for kind, want := range map[string]string{"text/plain": "rich", "text/html": "<b>rich</b>", "image/png": pngHead + "rich"} {
					equal(t, kind, string(outs[0].Data[kind]), want)
				}
			},
			Negative: noOutputs("value-rich"),
		},
		{
			ID: "values/displays", Feature: rich, Programs: []string{"displays"},
			Doc: "Displays come in order with each other, with the text around them and with the last value.",
			Positive: shared(func(t *T, s executor.Session) {
				for range 10 { // text and displays that travel on different ways may be in order by chance
					res, events := t.events(s, t.Program("displays"))
					outputs(t, res, events)
					if got, want := sketch(events), `"a\n" html "<i>1</i>" "b\n" html "<i>2</i>" main "3"`; got != want {
						t.Fatalf("got %s, want %s", got, want)
					}
				}
			}),
			Negative: noOutputs("displays"),
		},
		{
			ID: "values/before-exception", Feature: rich, Programs: []string{"display-then-raise"},
			Doc: "What was displayed before an exception is kept.",
			Positive: func(t *T) {
				res, events := t.events(t.Shared(), t.Program("display-then-raise"))
				t.ended(res, executor.StatusFailed, "")
				if outs := outputs(t, res, events); len(outs) != 1 || outs[0].Main || !strings.Contains(string(outs[0].Data["text/plain"]), "kept") {
					t.Errorf("got %v, want one output that is not the main one", outs)
				}
			},
			Negative: noOutputs("display-then-raise"),
		},
		{
			ID: "values/limit", Feature: rich, Programs: []string{"display-big", "display-flood"},
			Doc: "Displays count for OutputBytes.",
			Positive: shared(func(t *T, s executor.Session) {
				for _, req := range []executor.Request{t.Program("display-big", "count", 100000), t.Program("display-flood")} {
					req.Limits = executor.RunLimits{WallTime: 20 * time.Second, OutputBytes: 4096}
					res, events := t.events(s, req)
					t.ended(res, executor.StatusKilled, executor.ReasonOutput)
					size := 0
					for _, out := range outputs(t, res, events) {
						for _, data := range out.Data {
							size += len(data)
						}
					}
					if size > 4096 {
						t.Errorf("got %d bytes of outputs, want at most the limit of 4096", size)
					}
				}
				req := t.Program("display-big", "count", 100000)
				if outs := t.outputsOf(s, req); len(outs) != 1 || !strings.Contains(string(outs[0].Data["text/plain"]), strings.Repeat("x", 100000)) {
					t.Errorf("got %d outputs, want the whole display within the limit", len(outs))
				}
			}),
			Negative: noOutputs("display-big", "count", 100000),
		},
		{
			ID: "values/media-types", Feature: rich, Programs: []string{"display-odd-types"},
			Doc: "Media types of outputs are lower-case, without parameters and of a sane length, whatever the code displays.",
			Positive: func(t *T) {
				res, events := t.events(t.Shared(), t.Program("display-odd-types"))
				t.mentions(res, "end")
				fine := false
				for _, out := range outputs(t, res, events) {
					fine = fine || string(out.Data["text/x-fine"]) == "odd"
				}
				if !fine {
					t.Errorf("the display of type text/x-fine is missing")
				}
			},
			Negative: noOutputs("display-odd-types"),
		},
		{
			ID: "values/figures", Feature: rich, Only: executor.Python, Programs: []string{"figure", "value-none"},
			Doc: "Open figures of matplotlib are outputs of type image/png without savefig: by show at once, others at the end; then they are closed.",
			Positive: shared(func(t *T, s executor.Session) {
				res, events := t.events(s, t.Program("figure"))
				outputs(t, res, events)
				want := `png "figure 1" "shown\ndrawn\n" png "figure 2" png "figure 3"`
				equal(t, "outputs", sketch(events), want)
				noneOf(t, "the figures of a run turned up in the next one", t.outputsOf(s, t.Program("value-none")))
			}),
			Negative: noOutputs("figure"),
		},
	}
}

var mediaType = regexp.MustCompile(`^[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}$`)

// outputs checks what holds for all outputs of a run, and returns them.
func outputs(t *T, res *executor.Result, events []executor.Event) []executor.Output {
	var seen []executor.Output
	for _, ev := range events {
		if ev.Kind != executor.EventOutput {
			continue
		}
		if ev.Output == nil {
			t.Fatalf("event %d has no output", ev.Seq)
		}
		seen = append(seen, *ev.Output)
		for kind := range ev.Output.Data {
			if !mediaType.MatchString(kind) {
				t.Errorf("the media type %s is not lower-case and without parameters", excerpt(kind))
			}
		}
	}
	if len(seen) != len(res.Outputs) || len(seen) > 0 && !reflect.DeepEqual(seen, res.Outputs) {
		t.Errorf("got %v in the result, %v in the events", res.Outputs, seen)
	}
	return seen
}

// outputs runs req in s and returns its result and outputs, checked as outputs checks them.
func (t *T) outputs(s executor.Session, req executor.Request) (*executor.Result, []executor.Output) {
	res, events := t.events(s, req)
	return res, outputs(t, res, events)
}

// outputsOf is outputs for who needs the outputs only.
func (t *T) outputsOf(s executor.Session, req executor.Request) []executor.Output {
	_, outs := t.outputs(s, req)
	return outs
}

// noOutputs checks that a backend without rich output has none, so that no code comes to rely on
// it.
func noOutputs(program string, args ...any) func(*T) {
	return shared(func(t *T, s executor.Session) {
		noneOf(t, "outputs, although rich output is not declared", t.outputsOf(s, t.Program(program, args...)))
	})
}

// sketch writes down text and outputs in the order of the events.
func sketch(events []executor.Event) string {
	var parts []string
	var pending strings.Builder
	flush := func() {
		if pending.Len() > 0 {
			parts = append(parts, strconv.Quote(pending.String()))
			pending.Reset()
		}
	}
	for _, ev := range events {
		if ev.Kind == executor.EventStdout {
			pending.Write(ev.Data)
		}
		if ev.Kind != executor.EventOutput {
			continue
		}
		flush()
		kind, name := "text/plain", "plain"
		switch _, best, _ := ev.Output.Data.Best("image/png", "text/html"); {
		case ev.Output.Main:
			name = "main"
		case best != nil:
			if kind, name = "image/png", "png"; ev.Output.Data[kind] == nil {
				kind, name = "text/html", "html"
			}
		}
		parts = append(parts, name+" "+strconv.Quote(strings.TrimPrefix(string(ev.Output.Data[kind]), pngHead)))
	}
	flush()
	return strings.Join(parts, " ")
}
