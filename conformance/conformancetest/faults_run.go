package conformancetest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// onEvents makes a fault of a function that changes what a run emits.
func onEvents(change func(executor.Event) executor.Event) func(driver.Driver) driver.Driver {
	return plant(tamper{run: func(_ *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error) {
		return next(ctx, req, func(ev executor.Event) error { return emit(change(ev)) })
	}})
}

// onExit makes a fault of a function that changes how a run ends.
func onExit(change func(*driver.Exit)) func(driver.Driver) driver.Driver {
	return plant(tamper{run: func(_ *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error) {
		exit, err := next(ctx, req, emit)
		change(&exit)
		return exit, err
	}})
}

// runFaults are about runs: what they emit, and how they end.
func runFaults() []Fault {
	return []Fault{
		{
			Name: "stdout-stderr-swapped", Doc: "What code writes to stdout arrives as stderr, and the other way round.",
			Plant: onEvents(func(ev executor.Event) executor.Event {
				switch ev.Kind {
				case executor.EventStdout:
					ev.Kind = executor.EventStderr
				case executor.EventStderr:
					ev.Kind = executor.EventStdout
				}
				return ev
			}),
		},
		{
			Name: "output-repeated", Doc: "A piece of output comes twice, as after a stream that was resumed.",
			Plant: plant(tamper{run: func(_ *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error) {
				n := 0
				return next(ctx, req, func(ev executor.Event) error {
					if n++; n == 3 && ev.Kind == executor.EventStdout {
						if err := emit(ev); err != nil {
							return err
						}
					}
					return emit(ev)
				})
			}}),
		},
		{
			Name: "bytes-replaced", Doc: "Output is taken for text: bytes that are not UTF-8 are replaced.",
			Plant: onEvents(func(ev executor.Event) executor.Event {
				ev.Data = executor.Bytes(strings.ToValidUTF8(string(ev.Data), "\uFFFD"))
				return ev
			}),
		},
		{
			Name: "timeout-output-lost", Doc: "The output of a run of less than twenty seconds comes when it ends, and never if it is stopped.",
			Plant: plant(tamper{run: lostWhenStopped}),
		},
		{
			Name: "never-waits", Doc: "A run ends with its last statement, whatever it has started.",
			Needs: []executor.Feature{executor.FeatureLinger}, Plant: onRequest(func(r *executor.Request) {
				if r.Command == nil {
					r.Linger = new(time.Duration)
				}
			}),
		},
		{
			Name: "linger-ignored", Doc: "A run waits for what it has started as if nothing was said about that.",
			Needs: []executor.Feature{executor.FeatureLinger}, Plant: onRequest(func(r *executor.Request) { r.Linger = nil }),
		},
		{
			Name: "left-running-unsaid", Doc: "What goes on after a run is not named.",
			Needs: []executor.Feature{executor.FeatureLinger}, Plant: onExit(func(e *driver.Exit) { e.LeftRunning = nil }),
		},
		{
			Name: "exit-124-as-timeout", Doc: "Exit code 124 is taken for the one of timeout(1).",
			Needs: []executor.Feature{executor.FeatureExitCode},
			Plant: onExit(func(e *driver.Exit) {
				if e.Code == 124 {
					e.Reason = executor.ReasonWallTime
				}
			}),
		},
		{
			Name: "exit-137-as-memory", Doc: "Exit code 137 is taken for the one of a process that the kernel killed for its memory.",
			Needs: []executor.Feature{executor.FeatureExitCode},
			Plant: onExit(func(e *driver.Exit) {
				if e.Code == 137 {
					e.Reason = executor.ReasonMemory
				}
			}),
		},
		{
			Name: "exit-code-lost", Doc: "Code that ends itself always ends with 0.",
			Needs: []executor.Feature{executor.FeatureExitCode},
			Plant: onExit(func(e *driver.Exit) {
				if e.Exception == nil {
					e.Code = 0
				}
			}),
		},
		{
			Name: "exception-lost", Doc: "An exception is an exit code only.",
			Plant: onExit(func(e *driver.Exit) { e.Exception = nil }),
		},
		{
			Name: "exception-line-off", Doc: "Lines of exceptions are counted in what the code was wrapped in.",
			Plant: onExit(func(e *driver.Exit) {
				if e.Exception != nil && e.Exception.Line > 0 {
					e.Exception.Line++
				}
			}),
		},
		{
			Name: "values-lost", Doc: "The value of the last expression is dropped.",
			Needs: []executor.Feature{executor.FeatureRichOutput},
			Plant: plant(tamper{run: func(_ *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error) {
				return next(ctx, req, func(ev executor.Event) error {
					if ev.Output != nil && ev.Output.Main {
						return nil
					}
					return emit(ev)
				})
			}}),
		},
		{
			Name: "output-at-the-end", Doc: "Events that are promised to arrive while the code runs come when it has ended.",
			Needs: []executor.Feature{executor.FeatureStreaming},
			Plant: plant(tamper{run: atTheEnd}),
		},
		{
			Name: "output-held-back", Doc: "Behind other output, a piece of output waits for the next one or the end of the run.",
			Needs: []executor.Feature{executor.FeatureStreaming},
			Plant: plant(tamper{run: heldBack}),
		},
		{
			Name: "output-of-the-dead-lost", Doc: "Code whose interpreter dies loses the last piece of its output, unless that is the only one.",
			Plant: plant(tamper{run: func(s *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error) {
				alive := true
				return heldBack(s, ctx, req, func(ev executor.Event) error {
					if !alive {
						return nil
					}
					return emit(ev)
				}, func(ctx context.Context, req *executor.Request, emit emitFunc) (driver.Exit, error) {
					exit, err := next(ctx, req, emit)
					alive = !exit.StateLost
					return exit, err
				})
			}}),
		},
		{
			Name: "late-output-counted", Doc: "What code that was left running prints is counted to the next run.",
			Plant: plant(tamper{run: countedLate}),
		},
		{
			Name: "clock-in-the-queue", Doc: "The first run of a session has to wait, and its clock runs and is said to run meanwhile: more than half of a short time.",
			Plant: plant(tamper{run: clockInTheQueue}),
		},
		{
			Name: "cancel-ignored", Doc: "When its context ends a run returns as if the code had stopped, but the code goes on.",
			Plant: plant(tamper{run: leftRunning}),
		},
		{
			Name: "context-ignored", Doc: "A run does not look at its context: it returns when the code has ended.",
			Plant: plant(tamper{run: func(_ *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error) {
				return next(context.WithoutCancel(ctx), req, emit)
			}}),
		},
		{
			Name: "run-repeated", Doc: "The answer to a run is taken for lost, and the run is sent again.",
			Plant: plant(tamper{run: repeated}),
		},
		{
			Name: "wall-time-ignored", Doc: "The sandbox does not stop code at its wall time.",
			Plant: plant(tamper{run: func(_ *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error) {
				endless := *req
				endless.Limits.WallTime = executor.NoLimit
				return next(ctx, &endless, emit)
			}}),
		},
		{
			Name: "timeout-as-failure", Doc: "A run that is stopped at its wall time has the exit code 1, and no reason.",
			Plant: onExit(func(e *driver.Exit) {
				if e.Reason == executor.ReasonWallTime {
					e.Reason, e.Code = "", 1
				}
			}),
		},
		{
			Name: "unclassified-error", Doc: "Reset fails with an error of no kind.",
			Needs: []executor.Feature{executor.FeatureState},
			Plant: plant(tamper{reset: func(*faultySession, context.Context, executor.Interpreter) error {
				return errors.New("EOF")
			}}),
		},
	}
}

// lostWhenStopped keeps back the output of short runs, and drops it if they are stopped.
func lostWhenStopped(_ *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error) {
	if w := req.Limits.WallTime; w == executor.NoLimit || w >= 20*time.Second {
		return next(ctx, req, emit)
	}
	var kept []executor.Event
	exit, err := next(ctx, req, func(ev executor.Event) error {
		if ev.Kind == executor.EventStarted {
			return emit(ev)
		}
		kept = append(kept, ev)
		return nil
	})
	if err != nil || exit.Reason != "" {
		return exit, err
	}
	for _, ev := range kept {
		if err := emit(ev); err != nil {
			return exit, err
		}
	}
	return exit, nil
}

// atTheEnd emits everything but the start when the code has ended, or has made a lot.
func atTheEnd(_ *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error) {
	var kept []executor.Event
	exit, err := next(ctx, req, func(ev executor.Event) error {
		if ev.Kind == executor.EventStarted || len(kept) > 50_000 {
			return emit(ev)
		}
		kept = append(kept, ev)
		return nil
	})
	for _, ev := range kept {
		if eerr := emit(ev); eerr != nil {
			return exit, eerr
		}
	}
	return exit, err
}

// heldBack emits the first piece of output at once, and each other one when the next one comes or
// the code has ended.
func heldBack(_ *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error) {
	first, kept := true, []executor.Event(nil)
	release := func() (err error) {
		for _, ev := range kept {
			err = emit(ev)
		}
		kept = nil
		return err
	}
	exit, err := next(ctx, req, func(ev executor.Event) error {
		if ev.Kind == executor.EventStarted || first {
			first = ev.Kind == executor.EventStarted
			return emit(ev)
		}
		err := release()
		kept = []executor.Event{ev}
		return err
	})
	if err == nil {
		err = release()
	}
	return exit, err
}

// countedLate begins a run with what the program "late" of the run before it will have printed. The
// driver below has dropped that.
func countedLate(s *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error) {
	late := s.note("late", "")
	var said strings.Builder
	exit, err := next(ctx, req, func(ev executor.Event) error {
		if err := emit(ev); err != nil {
			return err
		}
		if ev.Kind == executor.EventStdout && said.Len() < 100 {
			said.Write(ev.Data)
		}
		if ev.Kind == executor.EventStarted && late != "" {
			return emit(executor.Event{Kind: executor.EventStdout, Data: executor.Bytes(late)})
		}
		return nil
	})
	if said.String() == "left\n" {
		s.note("late", "late\n")
	}
	return exit, err
}

// queueTime is how long clockInTheQueue lets a session wait whose run has a wall time.
func queueTime(wall time.Duration) time.Duration {
	if wall == executor.NoLimit || wall > 20*time.Second {
		return 700 * time.Millisecond
	}
	return wall * 7 / 12
}

func clockInTheQueue(s *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error) {
	if s.note("used", "yes") == "yes" {
		return next(ctx, req, emit)
	}
	if err := emit(executor.Event{Kind: executor.EventStarted, Cell: 1}); err != nil {
		return driver.Exit{}, err
	}
	wait := queueTime(req.Limits.WallTime)
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	rest := *req
	if w := req.Limits.WallTime; w != executor.NoLimit {
		rest.Limits.WallTime = max(w-wait, time.Millisecond)
	}
	return next(ctx, &rest, func(ev executor.Event) error {
		if ev.Kind == executor.EventStarted {
			return nil
		}
		return emit(ev)
	})
}

// wasteTime is what each event takes that nobody wants, so that code which goes on does not take
// the whole machine.
const wasteTime = time.Millisecond

// leftRunning returns when ctx ends and leaves the code running.
func leftRunning(_ *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error) {
	type end struct {
		exit driver.Exit
		err  error
	}
	events, ended, gone := make(chan executor.Event), make(chan end, 1), make(chan struct{})
	defer close(gone)
	go func() { // that nobody waits for it is the fault
		exit, err := next(context.WithoutCancel(ctx), req, func(ev executor.Event) error {
			select {
			case events <- ev:
			case <-gone:
				time.Sleep(wasteTime)
			}
			return nil
		})
		ended <- end{exit, err}
	}()
	for {
		select {
		case ev := <-events:
			if err := emit(ev); err != nil {
				return driver.Exit{}, err
			}
		case <-ctx.Done():
			return driver.Exit{}, context.Cause(ctx)
		case e := <-ended:
			return e.exit, e.err
		}
	}
}

// repeated runs code twice, unless it was stopped, and reports the second time.
func repeated(_ *faultySession, ctx context.Context, req *executor.Request, emit emitFunc, next runFunc) (driver.Exit, error) {
	if w := req.Limits.WallTime; w == executor.DefaultWallTime && req.Stdin == nil {
		if exit, err := next(ctx, req, func(executor.Event) error { return nil }); err != nil || exit.Reason != "" {
			return exit, err
		}
	}
	return next(ctx, req, emit)
}
