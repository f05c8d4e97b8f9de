package cases

import (
	"context"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Engine runs a case. A method of conformance.T says what the method of its name does here.
type Engine interface {
	Context() context.Context
	Language() executor.Language
	Languages() []executor.Language
	Has(f executor.Feature) bool
	Grace() time.Duration

	Executor() executor.Executor
	Open(params map[string]string) executor.Executor
	Spec(edit ...func(*executor.Spec)) executor.Spec
	Session(edit ...func(*executor.Spec)) executor.Session
	Shared() executor.Session

	Program(name string, args ...any) executor.Request
	ProgramIn(l executor.Language, name string, args ...any) executor.Request
	Source(l executor.Language, name string, args ...any) string
	Run(s executor.Session, r executor.Request) *executor.Result

	Eventually(within time.Duration, what string, f func() bool)
	Refused(what string, err error, missing ...executor.Feature)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Abort(format string, args ...any)
	Logf(format string, args ...any)
	Failed() bool

	Child(name string, in []byte) []byte
	StartChild(name string, in []byte) Process
	Send(data []byte)
	Receive() []byte

	// OpenAs is Open as another owner.
	OpenAs(owner string) executor.Executor
	// Created returns a session that was created as Session creates one, or ends the case as it
	// does.
	Created(s executor.Session, err error) executor.Session
	// ID returns that of the case.
	ID() string
	// Labels returns the labels that the sandboxes of this case carry, and no others.
	Labels() map[string]string
	// Processes returns the names of the living processes below this one, by number and start time.
	// It is empty where the system does not tell.
	Processes() map[string]string
	// Cleanup calls f at the end of the case, the last one first.
	Cleanup(f func())
	// Protect calls f. If it panics, the case has found that. It is for goroutines of the case.
	Protect(f func())
}

// Process is a process that does a part of a case: conformance.Child.
type Process interface {
	Send(data []byte)
	Receive() []byte
	Wait() []byte
	Kill()
}
