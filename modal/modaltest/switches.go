package modaltest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Switch makes the server do what a provider does now and then and clients must live with. Clients
// cannot turn switches: they belong to tests. The functions of this package that return a Switch
// say what it does.
type Switch struct {
	name    string
	methods []string // none: every one
	times   int      // how often; zero: until it is turned off
	skip    int      // how many calls it lets pass first
	after   bool     // when the call was done, instead of its answer
	message int      // of a stream, behind which it is cut; zero: before the first
	do      func(ctx context.Context) error
}

// String names the switch.
func (sw Switch) String() string { return sw.name }

// Times returns sw for n calls only.
func (sw Switch) Times(n int) Switch {
	sw.times = n
	return sw
}

// Skip returns sw for the calls after the first n.
func (sw Switch) Skip(n int) Switch {
	sw.skip = n
	return sw
}

// armed is a switch that is on.
type armed struct {
	Switch
	seen, done int
}

// Switch turns a switch on. It is off when off is called, or when it has happened as often as it
// says.
func (s *Server) Switch(sw Switch) (off func()) {
	a := &armed{Switch: sw}
	s.mu.Lock()
	s.switches = append(s.switches, a)
	s.mu.Unlock()
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.switches = slices.DeleteFunc(s.switches, func(x *armed) bool { return x == a })
	})
}

// tripped returns what switches do to a call, or behind a message of a stream: instead of it, or
// instead of its answer.
func (s *Server) tripped(method string, message int) (before, after func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.switches {
		if a.do == nil || a.message != message || len(a.methods) > 0 && !slices.Contains(a.methods, method) || a.times > 0 && a.done == a.times {
			continue
		}
		if a.seen++; a.seen <= a.skip {
			continue
		}
		a.done++
		if a.after {
			return nil, a.do
		}
		return a.do, nil
	}
	return nil, nil
}

// on reports whether a switch is, and counts.
func (s *Server) on(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.switches {
		if a.name == name && (a.times == 0 || a.done < a.times) {
			a.done++
			return true
		}
	}
	return false
}

// count counts a call, or something that was done.
func (s *Server) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// Counts returns how often each method was called, and how often something was done: "sandboxes"
// and "processes" that were made, "repeated" calls of TaskExecStart for one that is there, and
// bytes of standard input that came "twice", and were written once.
func (s *Server) Counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

func answering(name string, err func() error, methods []string) Switch {
	return Switch{name: name, methods: methods, do: func(context.Context) error { return err() }}
}

// Throttled refuses calls with ResourceExhausted and, unless retryAfter is negative, the policy by
// which the SDK waits and asks again, without bound by itself. No method means every one.
func Throttled(retryAfter time.Duration, methods ...string) Switch {
	return answering("throttled", func() error {
		st := status.New(codes.ResourceExhausted, "Rate limit exceeded, please try again later")
		if retryAfter < 0 {
			return st.Err()
		}
		with, err := st.WithDetails(pb.RPCRetryPolicy_builder{RetryAfterSecs: float32(retryAfter.Seconds())}.Build())
		if err != nil {
			return err
		}
		return with.Err()
	}, methods)
}

// Refused refuses calls with a code, before anything is done.
func Refused(code codes.Code, text string, methods ...string) Switch {
	return answering("refused", func() error { return fail(code, "%s", text) }, methods)
}

// Lost does what calls ask for and loses the answer: it says Unavailable instead.
func Lost(methods ...string) Switch {
	sw := answering("lost", func() error {
		return fail(codes.Unavailable, "upstream connect error or disconnect/reset before headers")
	}, methods)
	sw.after = true
	return sw
}

// Cut aborts streams with Unavailable, behind their n-th message, or before the first if n is zero.
func Cut(n int, methods ...string) Switch {
	sw := answering("cut", func() error {
		return fail(codes.Unavailable, "stream terminated by RST_STREAM with error code: CANCEL")
	}, methods)
	sw.message = n
	return sw
}

// Silent lets calls wait for an answer until their client gives up or the switch is turned off.
func Silent(methods ...string) Switch {
	return Switch{name: "silent", methods: methods, do: func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}}
}

// Ended ends streams without a message, as if all had been said.
func Ended(methods ...string) Switch {
	return answering("ended", func() error { return nil }, methods)
}

// SamePage lets every page of a list of Sandboxes be the first one.
func SamePage() Switch { return Switch{name: "same-page"} }

// Unanswered does what calls ask for, and is silent then.
func Unanswered(methods ...string) Switch {
	sw := Silent(methods...)
	sw.name, sw.after = "unanswered", true
	return sw
}

// SlowScheduling keeps new Sandboxes of V1 without a task until it is turned off.
func SlowScheduling() Switch { return Switch{name: "slow-scheduling"} }

// BuildFails lets images fail to build.
func BuildFails() Switch { return Switch{name: "build-fails"} }

// UnknownFields adds a field to every answer that the SDK does not know, as later versions of the
// service may.
func UnknownFields() Switch { return Switch{name: "unknown-fields"} }
