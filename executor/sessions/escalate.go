package sessions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/pyimports"
)

// A Need is something that a run needs and the backend of its sandbox may lack.
type Need string

// The needs.
const (
	NeedSubprocess Need = "subprocess" // processes
	NeedThreads    Need = "threads"
	NeedPackage    Need = "package" // a module that is not installed
	NeedMemory     Need = "memory"
	NeedDisk       Need = "disk"
	NeedTimeout    Need = "timeout" // more time than the run had
)

// Needs lists all needs.
func Needs() []Need {
	return []Need{NeedSubprocess, NeedThreads, NeedPackage, NeedMemory, NeedDisk, NeedTimeout}
}

// Escalation says how conversations go on on a bigger backend once they need more than theirs has.
// The zero value means that they do not.
//
// Before code starts, the modules that it imports are read from its text. If one tells that the
// code needs processes or threads, or is not installed, the conversation moves first, and the code
// runs on the other backend, once. If code that has started fails because it needs more, it is not
// run again: its result is as it is, and the next run goes to the other backend. A notice in the
// Result says either. A conversation that has moved keeps to the other backend.
//
// A run with Request.Repeatable and without Stdin is the exception: a checkpoint is made before it,
// and if it fails because it needs more, the conversation goes on from there on the other backend
// and the code runs again. The Result is that of the second run, and the events of both follow each
// other. If that checkpoint cannot be made, it is a run like any other.
//
// If the conversation cannot be moved, because no checkpoint can be made, the other backend does
// not answer, or it has a weaker isolation than MinIsolation of the Spec, the code runs where it
// is, and a notice says why.
type Escalation struct {
	// To returns where conversations of a backend go, and for which needs. An empty name: nowhere.
	To func(backend string) (to string, on []Need)
	// Create makes a session on a named backend. Required with To.
	Create func(ctx context.Context, backend string, spec executor.Spec) (executor.Session, error)
}

// importing are the modules that are no use without what they need.
var importing = map[Need][]string{
	NeedSubprocess: {"subprocess", "multiprocessing", "pty"},
	NeedThreads:    {"threading", "_thread", "multiprocessing"},
}

// sandbox creates a sandbox for a record: on the backend to which the conversation was escalated,
// if it was, and otherwise where spec leads.
func (m *Manager) sandbox(ctx context.Context, r *Record, spec executor.Spec) (executor.Session, error) {
	if m.opts.Escalate.To == nil {
		return m.x.Create(ctx, spec)
	}
	if r.Need != "" {
		if to, on := m.opts.Escalate.To(r.Handle.Backend); to != "" && slices.Contains(on, r.Need) {
			r.On = to
		}
	}
	if r.On == "" {
		return m.x.Create(ctx, spec)
	}
	s, err := m.opts.Escalate.Create(ctx, r.On, spec)
	if errors.Is(err, executor.ErrInvalid) { // the backend is no longer there
		r.On = ""
		return m.x.Create(ctx, spec)
	}
	return s, err
}

// escalate moves the conversation before a run, if the run or the one before it needs more than the
// backend has. It returns a notice about that. While other calls use the session, it does not.
func (le *Lease) escalate(ctx context.Context, req executor.Request) (notice string) {
	x := le.m.opts.Escalate
	if x.To == nil || le.spec == nil || !le.place.TryLock() {
		return ""
	}
	defer le.place.Unlock()
	ctx, end := le.within(ctx)
	defer end()
	from := le.Info().Handle.Backend
	to, on := x.To(from)
	if to == "" || le.ctx.Err() != nil {
		return ""
	}
	need := le.pending()
	if need == "" || !slices.Contains(on, need) {
		if need = le.lacks(ctx, req, on); need == "" {
			return ""
		}
	}
	before, err := le.checkpoint(ctx)
	var kept *Kept
	if err == nil {
		kept, err = le.moveTo(ctx, to, before)
	}
	if err != nil {
		le.m.stays(ctx, le.Key, from, err)
		// A notice is for the user, and the text of an error may name hosts and images.
		return fmt.Sprintf("needs %s, but could not move from %s to %s: %s", need, from, to, executor.KindName(err))
	}
	return fmt.Sprintf("moved from %s to %s: needs %s", from, to, need) + notCarried(kept)
}

// within returns a context that also ends with the lease, and a function that releases it.
func (le *Lease) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(le.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// notCarried names what a conversation has lost by moving, as the end of a notice.
func notCarried(kept *Kept) (notice string) {
	if n := len(kept.Omitted); n > 0 {
		var names []string
		for _, o := range kept.Omitted[:min(n, 10)] {
			names = append(names, strconv.QuoteToASCII(o.Name))
		}
		notice = fmt.Sprintf("; %d things were not carried, among them %s", n, strings.Join(names, ", "))
	}
	return notice
}

// moveTo lets the conversation go on on another backend from an archive of it, for a caller that
// nothing else uses the session with.
func (le *Lease) moveTo(ctx context.Context, to string, from *point) (*Kept, error) {
	old := le.session()
	next, kept, err := le.m.goOn(ctx, &from.record, from.archive, func(ctx context.Context) (executor.Session, error) {
		return le.m.opts.Escalate.Create(ctx, to, *le.spec)
	})
	if err != nil {
		return nil, err
	}
	le.mu.Lock()
	behind, ran, wrote, installed := le.behind, le.ran, le.wrote, le.installed
	le.behind, le.ran, le.wrote, le.need, le.installed = 0, kept.ran, false, "", kept.Installed
	le.mu.Unlock()
	i, was := next.Info(), old.Info().Handle
	err = le.update(ctx, func(r *Record) {
		r.Created, r.Running, r.Tried, r.On, r.Ran = i.Created, time.Time{}, 0, to, le.ran
		r.Handle, r.Attach, r.Fencing = i.Handle, attachable(next), i.Capabilities.Has(executor.FeatureFencing)
	})
	if err != nil {
		next.Close() // if this fails, the idle TTL removes it
		le.mu.Lock()
		le.behind, le.ran, le.wrote, le.installed = behind, ran, wrote, installed
		le.mu.Unlock()
		return nil, err
	}
	le.mu.Lock()
	le.at = next
	le.mu.Unlock()
	le.m.setSession(le.l, next)
	le.m.closeLater(old)
	return kept, le.m.abandon(ctx, "escalate", le.Key, was, LossMoved)
}

// pending returns what an earlier run needed.
func (le *Lease) pending() Need {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.need
}

// wants returns what a run has failed for that its backend lacks, and which backend has it.
func (le *Lease) wants(res *executor.Result) (need Need, to string) {
	x := le.m.opts.Escalate
	if x.To == nil || le.spec == nil || res == nil {
		return "", ""
	}
	if need = wanted(res); need == "" {
		return "", ""
	}
	to, on := x.To(le.Info().Handle.Backend)
	if to == "" || !slices.Contains(on, need) {
		return "", ""
	}
	return need, to
}

// later notes that the next run goes to another backend, and returns a notice about it.
func (le *Lease) later(need Need, to string) (notice string) {
	le.mu.Lock()
	defer le.mu.Unlock()
	le.need = need
	return fmt.Sprintf("needs %s: the next run goes on on %s; this one is not repeated", need, to)
}

// wanted returns what a result says that its code needs.
func wanted(res *executor.Result) Need {
	switch res.Reason {
	case executor.ReasonMemory:
		return NeedMemory
	case executor.ReasonDisk:
		return NeedDisk
	case executor.ReasonWallTime:
		return NeedTimeout
	}
	if res.Exception == nil {
		return ""
	}
	switch e := res.Exception; {
	case e.Type == "MemoryError":
		return NeedMemory
	case e.Type == "ModuleNotFoundError":
		return NeedPackage
	case e.Type == "OSError" && strings.HasPrefix(e.Message, "[Errno 28]"): // ENOSPC, the same on each system
		return NeedDisk
	case e.Type == "OSError" && strings.Contains(e.Message, "does not support processes"): // of Emscripten
		return NeedSubprocess
	case e.Type == "RuntimeError" && strings.Contains(e.Message, "can't start new thread"):
		return NeedThreads
	}
	return ""
}

// lacks returns what code needs that the backend lacks, as far as its imports tell.
func (le *Lease) lacks(ctx context.Context, req executor.Request, on []Need) Need {
	caps := le.Info().Capabilities
	if req.Command != nil || len(caps.Languages) == 0 || caps.Interpreter(languageOf(req.Language, caps)) != executor.Python {
		return ""
	}
	names := pyimports.Modules(req.Code)
	for _, need := range []Need{NeedSubprocess, NeedThreads} {
		if slices.Contains(on, need) && slices.ContainsFunc(importing[need], func(name string) bool { return slices.Contains(names, name) }) {
			return need
		}
	}
	if slices.Contains(on, NeedPackage) && le.uninstalled(ctx, names) {
		return NeedPackage
	}
	return ""
}

// probeTime bounds the run that asks the interpreter for modules.
const probeTime = 5 * time.Second

// uninstalled reports whether the interpreter does not find one of the modules. It asks only for
// names that it was not asked for in this sandbox yet. What the code of the conversation makes of
// the answer decides about the conversation only.
func (le *Lease) uninstalled(ctx context.Context, names []string) bool {
	s := le.session()
	if id := s.Info().Handle.Session; le.l.found.session != id {
		le.l.found.session, le.l.found.modules = id, map[string]bool{}
	}
	var ask []string
	for _, n := range names {
		if !le.l.found.modules[n] {
			ask = append(ask, strconv.QuoteToASCII(n))
		}
	}
	if len(ask) == 0 {
		return false
	}
	// A comprehension binds no name of the conversation.
	code := fmt.Sprintf(`print(*[n for n in [%s] if n not in __import__("sys").modules and __import__("importlib.util").util.find_spec(n) is None])`, strings.Join(ask, ", "))
	res, err := keeper{s}.Run(ctx, executor.Request{
		Language: executor.Python, Code: code, Limits: executor.RunLimits{WallTime: probeTime}, Linger: new(time.Duration), Keep: 64 << 10,
	}, nil)
	if err != nil || res.Status != executor.StatusOK {
		return false // the run itself will tell
	}
	missing := strings.Fields(res.Stdout.String())
	for _, n := range names {
		if slices.Contains(missing, n) {
			return true
		}
		if len(le.l.found.modules) < mostModules {
			le.l.found.modules[n] = true
		}
	}
	return false
}

// mostModules bounds the modules of a sandbox that are remembered.
const mostModules = 1000

// languageOf returns the language that a request means by l.
func languageOf(l executor.Language, caps executor.Capabilities) executor.Language {
	if l == "" && len(caps.Languages) > 0 {
		return caps.Languages[0].Language
	}
	return l
}
