package fake

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"strings"
	"time"

	"go.starlark.net/starlark"

	"github.com/execbroker/execbroker/executor"
)

// arguments are the arguments of a call of a built-in function.
type arguments struct {
	e      *execution
	thread *starlark.Thread
	name   string
	v      starlark.Tuple
}

func (a arguments) any(i int) starlark.Value {
	if i >= len(a.v) {
		a.e.throw("TypeError", "%s wants an argument %d", a.name, i+1)
	}
	return a.v[i]
}

func (a arguments) text(i int) string { return text(a.any(i)) }

func (a arguments) int(i int) (n int64) {
	if err := starlark.AsInt(a.any(i), &n); err != nil {
		a.e.throw("TypeError", "%s wants a whole number as argument %d: %v", a.name, i+1, err)
	}
	return n
}

// millis returns an argument in milliseconds as a duration.
func (a arguments) millis(i int) time.Duration { return time.Duration(a.int(i)) * time.Millisecond }

// file returns the absolute name of a file.
func (a arguments) file(i int) string {
	name := a.text(i)
	if !path.IsAbs(name) {
		name = path.Join(a.e.dir, name)
	}
	return path.Clean(name)
}

// line joins the arguments as print does.
func (a arguments) line() string {
	var words []string
	for _, v := range a.v {
		words = append(words, text(v))
	}
	return strings.Join(words, " ") + "\n"
}

// builtin is a function that programs can call.
type builtin func(*execution, arguments) starlark.Value

// value makes a value of Starlark of a built-in function.
func (f builtin) value(name string) starlark.Value {
	return starlark.NewBuiltin(name, func(t *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (v starlark.Value, err error) {
		e := t.Local(running).(*execution)
		end := e.protect(func() {
			if len(kwargs) > 0 {
				e.throw("TypeError", "%s takes no arguments with names", name)
			}
			v = f(e, arguments{e, t, name, args})
		})
		if end != nil {
			return nil, unwinding{end}
		}
		return v, nil
	})
}

func init() { // Starlark's table can be extended before the first program
	for name, f := range map[string]builtin{
		// Output: print and eprint write a line, out and err what they get.
		"print":  does(func(e *execution, a arguments) { e.write(executor.EventStdout, a.line()) }),
		"eprint": does(func(e *execution, a arguments) { e.write(executor.EventStderr, a.line()) }),
		"out":    does(func(e *execution, a arguments) { e.write(executor.EventStdout, a.text(0)) }),
		"err":    does(func(e *execution, a arguments) { e.write(executor.EventStderr, a.text(0)) }),
		"unhex": func(e *execution, a arguments) starlark.Value {
			b, err := hex.DecodeString(a.text(0))
			if err != nil {
				e.throw("ValueError", "%v", err)
			}
			return starlark.Bytes(b)
		},
		"json": func(e *execution, a arguments) starlark.Value { return starlark.String(encode(a.any(0)).String()) },

		// Values. show returns a value made of pairs of media type and content; display displays
		// one.
		"show":    showing,
		"display": does(func(e *execution, a arguments) { e.display(false, bundle(a.any(0))) }),
		"notebook": does(func(e *execution, a arguments) {
			if !e.has(executor.FeatureRichOutput) {
				e.throw("SyntaxError", "this is the syntax of notebooks")
			}
		}),
		"figure": does(func(e *execution, a arguments) { e.figures = append(e.figures, a.int(0)) }),
		"plot":   does(func(e *execution, a arguments) { e.showFigures() }),

		// Ends. The arguments of throw after the message are the names of the functions in the
		// traceback.
		"throw": func(e *execution, a arguments) starlark.Value {
			t := &thrown{typ: a.text(0), msg: a.text(1)}
			for i := 2; i < len(a.v); i++ {
				t.frames = append(t.frames, a.text(i))
			}
			panic(t)
		},
		"exit": func(e *execution, a arguments) starlark.Value {
			if !e.command() && !e.has(executor.FeatureExitCode) {
				e.throw("SystemExit", "%d", a.int(0))
			}
			panic(exited{int(a.int(0)), len(a.v) > 1})
		},
		// attempt calls a function and returns the text of the error that it throws, or None.
		"attempt": func(e *execution, a arguments) starlark.Value {
			f := a.any(0)
			if a.thread.CallStackDepth() > maxCalls {
				e.throw("RecursionError", "too many calls in each other")
			}
			_, err := starlark.Call(a.thread, f, a.v[1:], nil)
			if err == nil {
				return starlark.None
			}
			e.check()
			end := ending(err)
			t, ok := end.(*thrown)
			if !ok {
				panic(end)
			}
			return starlark.String(t.typ + ": " + t.msg)
		},
		// awaited returns the value of an awaited call, or of anything else.
		awaited: func(_ *execution, a arguments) starlark.Value { return a.any(0) },
		// at_exit writes a file when the interpreter is reset.
		"at_exit": does(func(e *execution, a arguments) {
			name, data := a.file(0), []byte(a.text(1))
			e.in.exits = append(e.in.exits, func() { _ = e.box.disk.write(name, data, 0, false) })
		}),
		"die": does(func(e *execution, a arguments) {
			e.signal = a.text(0)
			e.stop(errDied, true)
			e.check()
		}),

		// Time. deafen makes the code ignore all interrupts from now on.
		"sleep":   does(func(e *execution, a arguments) { e.sleep(a.millis(0)) }),
		"forever": does(func(e *execution, a arguments) { e.wait(nil) }),
		"deafen":  does(func(e *execution, a arguments) { e.deaf = true }),
		"burn": func(e *execution, a arguments) starlark.Value {
			share := 1.0
			if cpus := e.box.spec.Limits.CPUs; cpus > 0 {
				share = min(share, cpus)
			}
			e.sleep(a.millis(0))
			return starlark.String(fmt.Sprintf("%.3f", share))
		},

		// State and input. recall returns a variable of an earlier program, or its
		// second argument if there is none.
		"recall": func(e *execution, a arguments) starlark.Value {
			if v := e.in.vars[a.text(0)]; v != nil {
				return v
			}
			return a.any(1)
		},
		"sabotage": does(func(e *execution, _ arguments) { clear(e.in.vars) }),
		"readline": func(e *execution, a arguments) starlark.Value { return e.readLine() },
		"readsome": func(e *execution, a arguments) starlark.Value { return starlark.String(e.readSome()) },
		"arg": func(e *execution, a arguments) starlark.Value {
			if i := a.int(0); i >= 0 && i < int64(len(e.args)) {
				return starlark.String(e.args[i])
			}
			return starlark.None
		},

		// Terminals. interrupt waits for an interrupt, and resized for a new size.
		"terminal": func(e *execution, a arguments) starlark.Value {
			if e.req.Terminal == nil {
				return starlark.String("none")
			}
			return starlark.String(fmt.Sprint(e.size.Rows, " ", e.size.Columns))
		},
		"interrupt": does(func(e *execution, a arguments) { e.interrupt() }),
		"resized":   does(func(e *execution, a arguments) { e.resized() }),

		// Environment.
		"cwd": func(e *execution, a arguments) starlark.Value { return starlark.String(e.dir) },
		"env": func(e *execution, a arguments) starlark.Value {
			if v, ok := e.env[a.text(0)]; ok {
				return starlark.String(v)
			}
			return starlark.None
		},
		"environ": func(e *execution, a arguments) starlark.Value { return jsonText(e.env) },
		"surroundings": func(e *execution, a arguments) starlark.Value {
			return jsonText(map[string]any{
				"offset": 0, "tz": e.env["TZ"], "lang": e.env["LANG"], "encoding": "UTF-8",
				"home": e.canWrite(home), "temp": e.canWrite("/tmp"), "home_dir": home,
			})
		},

		// Files.
		"read": func(e *execution, a arguments) starlark.Value {
			data, err := e.box.disk.read(a.file(0))
			e.must(err)
			return starlark.String(data)
		},
		"write":  does(func(e *execution, a arguments) { e.must(e.box.disk.write(a.file(0), []byte(a.text(1)), 0, false)) }),
		"append": does(func(e *execution, a arguments) { e.must(e.box.disk.extend(a.file(0), a.text(1))) }),
		"lock":   does(func(e *execution, a arguments) { e.must(e.box.disk.lock(a.file(0))) }),
		"exists": func(e *execution, a arguments) starlark.Value {
			_, err := e.box.disk.stat(a.file(0))
			return starlark.Bool(err == nil)
		},
		"remove": does(func(e *execution, a arguments) {
			_, err := e.box.disk.stat(a.file(0))
			e.must(err)
			e.must(e.box.disk.remove(a.file(0)))
		}),
		"mkdir":   does(func(e *execution, a arguments) { e.must(e.box.disk.mkdirAll(a.file(0))) }),
		"symlink": does(func(e *execution, a arguments) { e.must(e.box.disk.symlink(a.text(0), a.file(1))) }),
		"mode": func(e *execution, a arguments) starlark.Value {
			i, err := e.box.disk.stat(a.file(0))
			e.must(err)
			return starlark.String(fmt.Sprintf("%o", i.Mode&fs.ModePerm))
		},

		// Limits and capabilities of the sandbox. take takes MiB of memory; fork returns how many
		// processes could be started.
		"take": does(func(e *execution, a arguments) { e.take(a.int(0) << 20) }),
		"fork": func(e *execution, a arguments) starlark.Value {
			n := a.int(0)
			if most := e.box.spec.Limits.Processes; most > 0 {
				n = min(n, int64(most))
			}
			return starlark.MakeInt64(n)
		},
		"subprocess": func(e *execution, a arguments) starlark.Value {
			return starlark.Bool(e.has(executor.FeatureSubprocess))
		},
		"thread": func(e *execution, a arguments) starlark.Value { return starlark.Bool(e.has(executor.FeatureThreads)) },
		"imported": func(e *execution, a arguments) starlark.Value {
			return starlark.Bool(e.box.installed(e.box.caps.Interpreter(e.req.Language), a.text(0)))
		},
		"language": func(e *execution, a arguments) starlark.Value { return starlark.String(e.req.Language) },
		"connect":  func(e *execution, a arguments) starlark.Value { return starlark.Bool(e.connect(a.text(0), a.text(1))) },
		"query":    func(e *execution, a arguments) starlark.Value { return starlark.Bool(e.query(a.text(0), a.text(1))) },

		// Servers: serve starts one at an address and returns its port; listening prints the ports
		// before something listens at them.
		"serve":     func(e *execution, a arguments) starlark.Value { return starlark.MakeInt64(e.serve(a.text(0))) },
		"listening": func(*execution, arguments) starlark.Value { return starlark.MakeInt(ownPort) },

		// What continues after the end of the code: a line that is printed later, an error that
		// comes later, a file that grows.
		"later": does(func(e *execution, a arguments) {
			d, line := a.millis(0), a.text(1)+"\n"
			e.started = append(e.started, e.in.leave("timer", func(end <-chan struct{}) {
				if pause(d, end) {
					e.post(executor.Event{Kind: executor.EventStdout, Data: executor.Bytes(line)})
				}
			}))
		}),
		"late_error": does(func(e *execution, a arguments) {
			d, message := a.millis(0), a.text(1)
			e.started = append(e.started, e.in.leave("timer", func(end <-chan struct{}) {
				switch {
				case !pause(d, end):
				case e.req.Language == executor.Python: // an error in a thread of Python ends only the thread
					e.post(executor.Event{Kind: executor.EventStderr, Data: executor.Bytes("ValueError: " + message + "\n")})
				default:
					e.mu.Lock()
					defer e.mu.Unlock()
					e.late = &thrown{typ: "Error", msg: message}
				}
			}))
		}),
		"ticker": does(func(e *execution, a arguments) {
			name := a.file(0)
			l := e.in.leave("interval", func(end <-chan struct{}) {
				for e.box.disk.extend(name, "x") == nil && pause(10*time.Millisecond, end) {
				}
			})
			if len(a.v) > 1 { // like a chain of timers for which a run waits
				e.started = append(e.started, l)
			}
		}),
	} {
		starlark.Universe[name] = f.value(name)
	}
}

// does makes a built-in function of one that returns nothing.
func does(f func(*execution, arguments)) builtin {
	return func(e *execution, a arguments) starlark.Value {
		f(e, a)
		return starlark.None
	}
}

// pause waits for d. It returns false if end came first.
func pause(d time.Duration, end <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-end:
		return false
	}
}

func jsonText(v any) starlark.String {
	b, err := json.Marshal(v)
	if err != nil {
		return "null"
	}
	return starlark.String(b)
}

func (e *execution) canWrite(dir string) bool {
	name := path.Join(dir, "probe")
	if e.box.disk.write(name, nil, 0, false) != nil {
		return false
	}
	return e.box.disk.remove(name) == nil
}

// mediaType matches what show accepts: lower case, without parameters, of a length that fits into
// any protocol.
var mediaType = regexp.MustCompile(`^[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,60}$`)

func showing(e *execution, a arguments) starlark.Value {
	v := rich{data: executor.MIMEBundle{}}
	for i := 0; i+1 < len(a.v); i += 2 {
		if t := a.text(i); mediaType.MatchString(t) {
			v.data[t] = executor.Bytes(a.text(i + 1))
		}
	}
	return v
}

// showFigures displays the figures that were made since the last call.
func (e *execution) showFigures() {
	open := e.figures
	e.figures = nil
	for _, n := range open {
		e.display(false, executor.MIMEBundle{"image/png": executor.Bytes(fmt.Sprintf("\x89PNG\r\n\x1a\nfigure %d", n))})
	}
}

// environment is the environment of code, without the variables of Spec and Request.
func environment(more ...map[string]string) map[string]string {
	env := map[string]string{"HOME": home, "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin", "TMPDIR": "/tmp", "TZ": "UTC"}
	for _, m := range more {
		maps.Copy(env, m)
	}
	return env
}

// requirement matches the name at the beginning of a requirement.
var requirement = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*`)
