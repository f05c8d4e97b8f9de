//go:build unix

package main

import (
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/execbroker/execbroker/executor"
)

// keyboard opens the terminal a second time, for code that asks the user something. Unlike standard
// input it can be closed during a read, so that no reader is left that would take the text at the
// next prompt.
func keyboard() (io.ReadCloser, error) {
	f, err := openTerminal()
	if err != nil { // not a nil *os.File in an interface
		return nil, err
	}
	return f, nil
}

func openTerminal() (*os.File, error) {
	f, err := os.Open("/dev/tty")
	if err != nil {
		return nil, err
	}
	if err := f.SetReadDeadline(time.Time{}); err != nil { // an error means that this system cannot interrupt a read
		f.Close()
		return nil, err
	}
	return f, nil
}

// askTerminal sends questions to the terminal out and returns the answer, when whole says that it
// is complete or the time is over. A program in the background asks nothing, because it would be
// stopped. Ctrl-C during the wait ends the program.
func askTerminal(out io.Writer, question string, whole func([]byte) bool) (answer []byte) {
	f, err := openTerminal()
	if err != nil {
		return nil
	}
	defer f.Close()
	conn, err := f.SyscallConn() // File.Fd would make reads block for good
	if err != nil {
		return nil
	}
	var cooked *term.State
	err = conn.Control(func(fd uintptr) {
		if group, err := unix.IoctlGetInt(int(fd), unix.TIOCGPGRP); err == nil && group == unix.Getpgrp() {
			cooked, _ = term.MakeRaw(int(fd)) // nil if raw mode is not possible
		}
	})
	if err != nil || cooked == nil {
		return nil
	}
	defer conn.Control(func(fd uintptr) { term.Restore(int(fd), cooked) })
	if _, err := io.WriteString(out, question); err != nil || f.SetReadDeadline(time.Now().Add(answerTime)) != nil {
		return nil
	}
	buf := make([]byte, maxAnswer)
	for len(answer) < maxAnswer && !whole(answer) {
		n, err := f.Read(buf[:maxAnswer-len(answer)])
		for _, c := range buf[:n] {
			if c == ctrlC {
				_ = unix.Kill(os.Getpid(), syscall.SIGINT) // as the terminal would have done
				continue
			}
			answer = append(answer, c)
		}
		if err != nil {
			break
		}
	}
	return answer
}

// followSize gives t the current size of this program's terminal, and every later size until end is
// called.
func followSize(fd int, t *executor.Terminal) (end func()) {
	changes, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(changes, syscall.SIGWINCH)
	takeSize(fd, t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-changes:
				takeSize(fd, t)
			case <-done:
				return
			}
		}
	})
	return func() {
		signal.Stop(changes)
		close(done)
		wg.Wait()
	}
}
