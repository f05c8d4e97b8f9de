package runner

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// states returns the states of all threads of user code, by process.
func (s *sandbox) states(t *testing.T) map[int]string {
	t.Helper()
	found := map[int]string{}
	for _, pid := range s.alive(t) {
		stats, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range stats {
			stat, _ := os.ReadFile(name)
			_, after, _ := strings.Cut(string(stat), ") ")
			if after != "" && after[0] != 'Z' && after[0] != 'X' {
				found[pid] += after[:1]
			}
		}
	}
	return found
}

// stopped reports whether no thread of user code executes anything. One in the state D may wait for
// a child that is stopped.
func (s *sandbox) stopped(t *testing.T) bool {
	t.Helper()
	for _, states := range s.states(t) {
		if strings.Trim(states, "TtD") != "" {
			return false
		}
	}
	return true
}

// background runs a request whose standard input is ended by done, and waits until it has printed
// something.
func (s *sandbox) background(t *testing.T, req executor.Request) (done func() result) {
	t.Helper()
	in, feed := io.Pipe()
	req.Stdin = in
	req.Limits = executor.RunLimits{WallTime: executor.NoLimit, OutputBytes: 1 << 20}
	if req.Language == "" {
		req.Dir = s.workdir
	}
	began, ended := make(chan struct{}), make(chan result, 1)
	go func() {
		var r result
		r.Exit, r.err = s.Run(t.Context(), &req, func(ev executor.Event) error {
			if ev.Kind == executor.EventStdout {
				if r.stdout == "" {
					close(began)
				}
				r.stdout += string(ev.Data)
			}
			return nil
		})
		ended <- r
	}()
	select {
	case <-began:
	case r := <-ended:
		t.Fatalf("got %+v %v", r, r.err)
	}
	return func() result {
		feed.Close()
		return <-ended
	}
}

// While a sandbox is suspended nothing of the user executes anything, whatever it does at that
// moment. Everything goes on afterwards but what code has stopped itself.
func TestSuspend(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, root string) {
		s := start(t, root)
		if r := s.code(t, "import threading, itertools\nx = 41\nn = itertools.count()\nthreading.Thread(target=lambda: [None for i in n], daemon=True).start()"); r.err != nil {
			t.Fatal(r.err)
		}
		done := s.background(t, executor.Request{Command: []string{"/bin/sh", "-c", `
sleep 1000 & own=$!
kill -STOP $own
while [ "$(cut -d' ' -f3 /proc/$own/stat)" != T ]; do :; done
(while :; do /bin/true; done) &
echo $own
cat
kill -CONT $own
echo end`}})
		for range 3 {
			if err := s.Suspend(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := s.states(t); !s.stopped(t) || len(got) < 4 {
				t.Errorf("got states %v while it is suspended", got)
			}
			if err := s.Suspend(t.Context()); err != nil { // again
				t.Error(err)
			}
			if r := s.code(t, "x += 1; print(x)"); r.err != nil || r.stdout == "" {
				t.Errorf("got %+v %v", r, r.err)
			}
		}
		counts := map[string]int{}
		eventually(t, "everything but what code has stopped goes on", func() bool {
			clear(counts)
			for _, states := range s.states(t) {
				counts[strings.ReplaceAll(states, "R", "S")[:1]]++
			}
			return counts["T"] == 1
		})
		if r := done(); r.err != nil || r.Code != 0 || !strings.HasSuffix(r.stdout, "\nend\n") {
			t.Errorf("got %+v %v", r, r.err)
		}
	})
}

// Code that multiplies, or continues what was stopped, is stopped all the same.
func TestSuspendHostile(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	for _, c := range []struct{ name, code string }{
		{"chain", "print(1, flush=True)\nif os.fork(): time.sleep(1000)\nwhile True:\n  if os.fork(): os._exit(0)"},
		{"storm", "print(1, flush=True)\nwhile True:\n  if not os.fork(): time.sleep(0.01); os._exit(0)\n  try:\n    while os.waitpid(-1, os.WNOHANG)[0]: pass\n  except OSError: pass"},
		{"pair", "a = os.getpid()\nb = os.fork() or a\nprint(1, flush=True)\nwhile True: os.kill(b, signal.SIGCONT)"},
		{"other-session", "if not os.fork(): os.setsid()\nprint(1, flush=True)\nwhile True: pass"},
		{"threads", "import threading\ndef f():\n  while True: pass\nfor _ in range(8): threading.Thread(target=f).start()\nprint(1, flush=True)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan result)
			began := make(chan struct{}, 1)
			go func() {
				var r result
				r.Exit, r.err = s.Run(ctx, &executor.Request{
					Command: []string{s.python, "-c", "import os, signal, time\n" + c.code},
					Limits:  executor.RunLimits{WallTime: executor.NoLimit, OutputBytes: 1 << 20},
				}, func(ev executor.Event) error {
					if ev.Kind == executor.EventStdout {
						select {
						case began <- struct{}{}:
						default:
						}
					}
					return nil
				})
				ended <- r
			}()
			<-began
			if err := s.Suspend(t.Context()); err != nil {
				t.Fatal(err)
			}
			eventually(t, "stopped, and for good", func() bool { return s.stopped(t) })
			if !s.stopped(t) {
				t.Errorf("got %v", s.states(t))
			}
			cancel() // which kills it, and wakes nobody
			if r := <-ended; !r.StateLost && r.err == nil && r.Code == 0 {
				t.Errorf("got %+v %v", r, r.err)
			}
			if !s.stopped(t) {
				t.Errorf("got %v after a run was stopped in a suspended sandbox", s.states(t))
			}
		})
	}
}

// A sandbox ends by its idle TTL while it is suspended, whatever runs in it.
func TestSuspendEnds(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	done := s.background(t, executor.Request{Command: []string{"/bin/sh", "-c", "echo 1; sleep 1000"}})
	if _, err := s.KeepAlive(t.Context(), 10*time.Second); err != nil { // not sooner: it has to be suspended
		t.Fatal(err)
	}
	if err := s.Suspend(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if err := s.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if got := s.alive(t); len(got) > 0 {
		t.Errorf("%v are left", got)
	}
	done()
}

// A run that is being stopped has time to heed that, and is not suspended.
func TestSuspendBusy(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended, heeds := make(chan driver.Exit), make(chan struct{})
	go func() {
		exit, _ := s.Run(ctx, &executor.Request{
			Language: executor.Python, Code: "import time\ntry:\n  print(1); time.sleep(1000)\nexcept KeyboardInterrupt:\n  print(2); time.sleep(1)",
			Limits: executor.RunLimits{WallTime: executor.NoLimit, OutputBytes: 1 << 20},
		}, func(ev executor.Event) error {
			switch strings.TrimSpace(string(ev.Data)) {
			case "1":
				cancel()
			case "2":
				close(heeds)
			}
			return nil
		})
		ended <- exit
	}()
	<-heeds
	if err := s.Suspend(t.Context()); !errors.Is(err, executor.ErrBusy) {
		t.Errorf("got %v", err)
	}
	if exit := <-ended; exit.StateLost {
		t.Errorf("got %+v", exit)
	}
}
