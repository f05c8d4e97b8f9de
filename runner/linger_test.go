package runner

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// lingering is what a run leaves running, and what becomes of it.
type lingering struct {
	name, code string
	stdout     string   // all that the run writes
	left       []string // beginnings of the names of what it has left running
	raises     string   // in the message of the exception, or in stderr
}

// A run of Python waits for what plain Python waits for at its end, and for the tasks and timers of
// its event loop.
func TestLingerPython(t *testing.T) {
	t.Parallel()
	const thread = "import threading, time\ndef late(n=0.1):\n    time.sleep(n); print('late')\n"
	each(t, func(t *testing.T, root string) {
		s := start(t, root)
		for _, c := range []lingering{
			{"thread", thread + "threading.Thread(target=late).start(); print('left')", "left\nlate\n", nil, ""},
			{"thread-of-thread", thread + "threading.Thread(target=lambda: threading.Thread(target=late).start()).start()", "late\n", nil, ""},
			{"timer-thread", "import threading; threading.Timer(0.1, print, ['late']).start()", "late\n", nil, ""},
			{"text-without-line-end", "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('late', end=''))).start()", "late", nil, ""},
			{"after-an-exception", thread + "threading.Thread(target=late).start(); 1 / 0", "late\n", nil, "division by zero"},
			{"after-exit", thread + "import sys; threading.Thread(target=late).start(); sys.exit()", "late\n", nil, ""},
			{"exception-in-a-thread", "import threading\ndef f(): raise ValueError('in a thread')\nthreading.Thread(target=f).start()", "", nil, "ValueError: in a thread"},
			{"daemon", thread + "threading.Thread(target=late, args=[3600], daemon=True, name='five').start(); print('left')", "left\n", []string{"daemon thread five"}, ""},
			{"raw-thread", "import _thread, time\nbegun = _thread.allocate_lock(); begun.acquire()\ndef f():\n  begun.release()\n  time.sleep(3600)\n_thread.start_new_thread(f, ()); begun.acquire(); print('left')", "left\n", []string{"thread "}, ""},
			{"executor", thread + "from concurrent.futures import ThreadPoolExecutor as P; pool = P(1, thread_name_prefix='pool'); f = pool.submit(late)\nf.add_done_callback(lambda f: (time.sleep(0.05), print('called')))", "late\ncalled\n", []string{"thread pool"}, ""},
			{"idle-executor", "from concurrent.futures import ThreadPoolExecutor as P; pool = P(1, thread_name_prefix='pool'); pool.submit(print, 'a').result()", "a\n", []string{"thread pool"}, ""},
			{"process", "import multiprocessing as m, time, os\ndef f(): time.sleep(0.1); os.write(1, b'late\\n')\nm.get_context('fork').Process(target=f).start()", "late\n", nil, ""},
			{"daemon-process", "import multiprocessing as m, time\nm.get_context('fork').Process(target=time.sleep, args=[3600], daemon=True).start()", "", []string{"process "}, ""},
			{"manager", "import multiprocessing as m; manager = m.get_context('fork').Manager()", "", []string{"process "}, ""},
			{"process-executor", "import multiprocessing as m; from concurrent.futures import ProcessPoolExecutor as P\npool = P(1, m.get_context('fork')); f = pool.submit(pow, 2, 3); f.add_done_callback(lambda f: print(f.result()))", "8\n", []string{"thread ", "daemon thread QueueFeederThread", "process "}, ""},
			{"popen", "import subprocess; p = subprocess.Popen(['sleep', '3600'])", "", []string{"process "}, ""},
			{"daemonized", "import os; os.system('sleep 3600 & '); print('left')", "left\n", []string{"process "}, ""},
			{"task", "import asyncio\nasync def f():\n    await asyncio.sleep(0.1); print('late')\ntask = asyncio.create_task(f()); await asyncio.sleep(0)", "late\n", nil, ""},
			{"call-later", "import asyncio; asyncio.get_running_loop().call_later(0.1, print, 'late'); await asyncio.sleep(0)", "late\n", nil, ""},
			{"call-soon", "import asyncio; asyncio.get_running_loop().call_soon(print, 'late'); await asyncio.sleep(0)", "late\n", nil, ""},
			{"to-thread", thread + "import asyncio; task = asyncio.create_task(asyncio.to_thread(late)); await asyncio.sleep(0)", "late\n", []string{"thread asyncio_"}, ""},
			{"thread-and-loop", "import asyncio, threading\nasync def f(): print('late')\nloop = asyncio.get_running_loop()\nthreading.Thread(target=lambda: asyncio.run_coroutine_threadsafe(f(), loop).result()).start()\nawait asyncio.sleep(0)", "late\n", nil, ""},
			{"exception-in-a-task", "import asyncio\nasync def f():\n    await asyncio.sleep(0.05); raise ValueError('in a task')\ntask = asyncio.create_task(f()); await asyncio.sleep(0)", "", nil, "ValueError: in a task"},
			{"server", "import asyncio\nasync def answer(r, w):\n    await r.read(); print('never')\nserver = await asyncio.start_server(answer, '127.0.0.1', 0)\nserving = asyncio.create_task(server.serve_forever())\nclient = await asyncio.open_connection(*server.sockets[0].getsockname())\nawait asyncio.sleep(0.1); print('left')", "left\n", []string{"task Server.serve_forever", "task answer", "server 127.0.0.1:"}, ""},
			{"long-names", "import threading, time\nfor _ in range(21): threading.Thread(target=time.sleep, args=[3600], daemon=True, name='x' * 60000).start()\nprint('left')", "left\n", slices.Repeat([]string{"daemon thread xxx"}, 21), ""},
			{"broken", thread + "threading.enumerate = None; print('left')", "left\n", nil, ""},
		} {
			t.Run(c.name, func(t *testing.T) { t.Parallel(); c.check(t, s, executor.Python) })
		}
	})
}

// The value of a cell is there while its run waits for what the cell has started.
func TestLingerAfterValue(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root)
		for name, code := range map[string]string{
			"thread": "import os, threading, time\ndef f():\n    while not os.path.exists('thread'): time.sleep(0.01)\nthreading.Thread(target=f).start()\n42",
			"task":   "import asyncio, os\nasync def f():\n    while not os.path.exists('task'): await asyncio.sleep(0.01)\ntask = asyncio.create_task(f()); await asyncio.sleep(0)\n42",
		} {
			req := executor.Request{Language: executor.Python, Context: name, Code: code, Limits: executor.RunLimits{WallTime: time.Minute, OutputBytes: 1 << 20}}
			exit, err := s.Run(t.Context(), &req, func(ev executor.Event) error {
				if ev.Kind != executor.EventOutput {
					return nil
				}
				return s.Files().Write(t.Context(), filepath.Join(s.workdir, name), strings.NewReader(""), 0o644)
			})
			if err != nil || exit.Reason != "" {
				t.Errorf("%s: got %+v, %v, want the value before the end", name, exit, err)
			}
		}
	})
}

// A run of JavaScript waits for what keeps plain Node alive, but for what listens, repeats or
// watches.
func TestLingerJavaScript(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, root string) {
		s := start(t, root, withNode)
		for _, c := range []lingering{
			{"nothing", "console.log('a')", "a\n", nil, ""},
			{"timer", "setTimeout(() => console.log('late'), 100); console.log('left')", "left\nlate\n", nil, ""},
			{"timers-in-a-row", "setTimeout(() => setTimeout(() => console.log('late'), 50), 50); 1", "late\n", nil, ""},
			{"timers-promises", "require('timers/promises').setTimeout(100).then(() => console.log('late')); 1", "late\n", nil, ""},
			{"immediate", "setImmediate(() => setImmediate(() => console.log('late'))); 1", "late\n", nil, ""},
			{"promise", "(async () => { await new Promise((r) => setTimeout(r, 100)); console.log('late') })(); 1", "late\n", nil, ""},
			{"read-file", "require('fs').readFile('/dev/null', 'utf8', (e, d) => console.log('late', d.length)); 1", "late 0\n", nil, ""},
			{"file-stream", "require('fs').createReadStream('/etc/passwd').on('data', () => {}).on('end', () => console.log('late')); 1", "late\n", nil, ""},
			{"zlib", "require('zlib').gzip(Buffer.alloc(1 << 22), (e, d) => console.log('late', d.length > 100)); 1", "late true\n", nil, ""},
			{"crypto", "require('crypto').pbkdf2('a', 'b', 200000, 64, 'sha512', (e, d) => console.log('late', d.length)); 1", "late 64\n", nil, ""},
			{"exec", "require('child_process').exec('sleep 0.1; echo late', (e, out) => console.log(out.trim())); 1", "late\n", nil, ""},
			{"worker", "new (require('worker_threads').Worker)(`setTimeout(() => require('worker_threads').parentPort.postMessage('late'), 50)`, {eval: true}).on('message', (m) => console.log(m)); 1", "late\n", nil, ""},
			{"worker-prints", "new (require('worker_threads').Worker)(`setTimeout(() => console.log('late'), 50)`, {eval: true}); 1", "late\n", nil, ""},
			{"http", "const http = require('http'); const server = http.createServer((q, a) => a.end('late')).listen(0, '127.0.0.1', () => http.get({ host: '127.0.0.1', port: server.address().port }, (a) => a.on('data', (d) => console.log(String(d))).on('end', () => server.close()))); 1", "late\n", nil, ""},
			{"fetch", "const server2 = require('http').createServer((q, a) => a.end('late')).listen(0, '127.0.0.1', () => fetch(`http://127.0.0.1:${server2.address().port}`).then((a) => a.text()).then(console.log)); 1", "late\n", []string{"server 127.0.0.1:", "socket "}, ""},
			{"accepted", "const net = require('net'); const server3 = net.createServer((s) => s.on('data', () => {})).listen(0, '127.0.0.1', () => { net.connect(server3.address().port, '127.0.0.1').unref() }); 1", "", []string{"server 127.0.0.1:", "socket "}, ""},
			{"stdin", "process.stdin.on('data', (d) => console.log('late')).on('end', () => console.log('end')); 1", "end\n", nil, ""},
			{"interval", "let n = 0; setInterval(() => n++, 10); console.log('left')", "left\n", []string{"interval"}, ""},
			{"interval-later", "setTimeout(() => setInterval(() => {}, 10), 50); 1", "", []string{"interval"}, ""},
			{"unreferenced", "setTimeout(() => console.log('late'), 3600000).unref(); 1", "", []string{"timer"}, ""},
			{"server", "require('net').createServer().listen(0, '127.0.0.1'); console.log('left')", "left\n", []string{"server 127.0.0.1:"}, ""},
			{"datagrams", "require('dgram').createSocket('udp4').bind(0, '127.0.0.1'); 1", "", []string{"server 127.0.0.1:"}, ""},
			{"watcher", "require('fs').watch('.'); 1", "", []string{"watcher"}, ""},
			{"unreferenced-child", "require('child_process').spawn('sleep', ['3600'], {detached: true, stdio: 'ignore'}).unref(); 1", "", []string{"process "}, ""},
			{"error-in-a-timer", "setTimeout(() => { throw new Error('in a timer') }, 50); 1", "", nil, "in a timer"},
			{"rejection-in-a-timer", "setTimeout(() => Promise.reject(new Error('nobody')), 50); 1", "", nil, "nobody"},
			{"error-in-a-callback", "require('fs').readFile('/dev/null', () => { throw new Error('in a callback') }); 1", "", nil, "in a callback"},
			{"broken", "process._getActiveHandles = null; globalThis.setTimeout = null; console.log('left')", "left\n", nil, ""},
		} {
			t.Run(c.name, func(t *testing.T) { t.Parallel(); c.check(t, s, executor.JavaScript) })
		}
	})
}

// At the wall time what a run waits for is stopped and the state kept; a bound is heeded; and no
// run waits for what an earlier one started.
func TestLingerEnds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root, withNode)
		for _, c := range []struct {
			name     string
			language executor.Language
			code     string // leaves something running that goes on for ever, and adds to a list "ticks"
			count    string // the length of the list
		}{
			{"thread", executor.Python, "import threading, time\nticks = []\ndef f():\n    while True: ticks.append(1); time.sleep(0.01)\nthreading.Thread(target=f).start()", "len(ticks)"},
			{"executor", executor.Python, "import time; from concurrent.futures import ThreadPoolExecutor\nticks = []\ndef f():\n    while True: ticks.append(1); time.sleep(0.01)\npool = ThreadPoolExecutor(1); future = pool.submit(f)", "len(ticks)"},
			{"task", executor.Python, "import asyncio\nticks = []\nasync def f():\n    while True: ticks.append(1); await asyncio.sleep(0.01)\ntask = asyncio.create_task(f()); await asyncio.sleep(0)", "await asyncio.sleep(0.1); len(ticks)"},
			{"call-later", executor.Python, "import asyncio\nticks = []\ndef f(): ticks.append(1); loop.call_later(0.01, f)\nloop = asyncio.get_running_loop(); f(); await asyncio.sleep(0)", "await asyncio.sleep(0.1); len(ticks)"},
			{"timers", executor.JavaScript, "ticks = []; (function f() { ticks.push(1); setTimeout(f, 10) })(); 1", "await new Promise((r) => setTimeout(r, 100)); ticks.length"},
			{"child", executor.JavaScript, "ticks = []; require('child_process').spawn('sh', ['-c', 'while :; do echo; sleep 0.01; done']).stdout.on('data', () => ticks.push(1)); 1", "await new Promise((r) => setTimeout(r, 100)); ticks.length"},
			{"worker", executor.JavaScript, "ticks = []; new (require('worker_threads').Worker)(`setInterval(() => require('worker_threads').parentPort.postMessage(1), 10)`, {eval: true}).on('message', () => ticks.push(1)); 1", "await new Promise((r) => setTimeout(r, 100)); ticks.length"},
		} {
			if c.language == executor.JavaScript && !hasNode(root) {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				run := func(code string, linger *time.Duration, wall time.Duration) result {
					r := s.do(t.Context(), executor.Request{Language: c.language, Context: c.name, Code: code, Linger: linger, Limits: executor.RunLimits{WallTime: wall}})
					if r.err != nil || r.Exception != nil && r.Reason == "" || r.StateLost {
						t.Fatalf("%s: got %+v, %v", code, r, r.Exception)
					}
					return r
				}
				run("1", nil, 0) // an interpreter starts
				if r := run(c.code, nil, 4*time.Second); r.Reason != executor.ReasonWallTime {
					t.Errorf("got %+v, want a timeout", r)
				}
				first := run(c.count, nil, 0).value()
				if next := run(c.count, nil, 0); next.value() != first || first == "0" {
					t.Errorf("it was not stopped: %s ticks, and then %s", first, next.value())
				}
				bound := 100 * time.Millisecond
				if r := run(c.code, &bound, 0); r.Reason != "" || len(r.LeftRunning) == 0 {
					t.Errorf("with a bound got %+v", r)
				}
				if r := run("1", nil, 0); r.Reason != "" || len(r.LeftRunning) == 0 {
					t.Errorf("after it got %+v, want it not to be waited for, and named", r)
				}
				bound = 0
				if r := run(c.code, &bound, 0); r.Reason != "" || len(r.LeftRunning) == 0 {
					t.Errorf("without waiting got %+v", r)
				}
				if err := s.Reset(t.Context(), executor.Interpreter{Context: c.name}); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
}

// A request that never ends keeps no later run waiting.
func TestLingerOldRequests(t *testing.T) {
	t.Parallel()
	s := start(t, host, withNode)
	r := s.do(t.Context(), executor.Request{
		Language: executor.JavaScript, Limits: executor.RunLimits{WallTime: 500 * time.Millisecond},
		Code: "require('child_process').execSync('mkfifo pipe'); require('fs').readFile('pipe', () => {}); 1",
	})
	if r.Reason != executor.ReasonWallTime || r.StateLost {
		t.Errorf("got %+v, want a timeout", r)
	}
	// Waiting for the request, it would have no end but that of its wall time.
	if r := s.js(t, "setTimeout(() => console.log('late'), 300); 1"); r.Reason != "" || r.stdout != "late\n" {
		t.Errorf("got %+v", r)
	}
}

// check runs the code in an interpreter of its own.
func (c lingering) check(t *testing.T, s *sandbox, l executor.Language) {
	r := s.do(t.Context(), executor.Request{Language: l, Context: c.name, Code: c.code})
	if r.err != nil || r.Reason != "" || r.stdout != c.stdout {
		t.Errorf("got %q, %+v, want %q", r.stdout, r, c.stdout)
	}
	said := r.stderr
	if r.Exception != nil {
		said += r.Exception.Message
	}
	if (said != "") != (c.raises != "") || !strings.Contains(said, c.raises) {
		t.Errorf("got the error %q, want %q", said, c.raises)
	}
	c.named(t, r)
	if err := s.Reset(t.Context(), executor.Interpreter{Context: c.name}); err != nil {
		t.Fatal(err)
	}
}

func (c lingering) named(t *testing.T, r result) {
	t.Helper()
	ok := len(r.LeftRunning) == len(c.left)
	for _, want := range c.left {
		found := false
		for _, got := range r.LeftRunning {
			found = found || strings.HasPrefix(got, want)
		}
		ok = ok && found
	}
	if !ok {
		t.Errorf("got %q left running, want %q", r.LeftRunning, c.left)
	}
}
