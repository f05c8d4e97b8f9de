package live

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds are those of a run. All must be set.
type Bounds struct {
	USD       float64       `json:"usd"`
	Sandboxes int           `json:"sandboxes"` // made in all
	Time      time.Duration `json:"time_ns"`   // without removing what is left at the end
}

// The reasons for the end of a run that has reached a bound.
var (
	errMoney     = errors.New("the budget is used up")
	errSandboxes = errors.New("no more sandboxes may be made")
	errEnded     = errors.New("the run has ended")
	errTime      = errors.New("the time is used up")
)

// ParseBudget reads an amount such as "2USD" or "0.50 USD".
func ParseBudget(text string) (float64, error) {
	number, ok := strings.CutSuffix(strings.TrimSpace(text), "USD")
	usd, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !ok || err != nil || !(usd > 0) || math.IsInf(usd, 0) {
		return 0, fmt.Errorf("%.40q is no budget; write it as 2USD", text)
	}
	return usd, nil
}

// Spent is what a run has made.
type Spent struct {
	Sandboxes int     `json:"sandboxes"`
	Seconds   float64 `json:"sandbox_seconds"`
	USD       float64 `json:"usd"` // at most
}

// meter counts sandboxes as the proxy sees them.
type meter struct {
	bounds Bounds
	stop   context.CancelCauseFunc

	creating sync.WaitGroup // as many as pending

	mu      sync.Mutex
	closed  bool // no more creates
	made    int
	pending int // creates without an answer yet
	rate    float64
	ended   Spent
	living  map[string]sandbox // by ID
}

type sandbox struct {
	since time.Time
	rate  float64   // USD in a second
	until time.Time // when the service ends it at the latest; zero: not known
}

// seconds returns how long a sandbox has lived at most.
func (s sandbox) seconds(now time.Time) float64 {
	if !s.until.IsZero() && s.until.Before(now) {
		now = s.until
	}
	return now.Sub(s.since).Seconds()
}

func newMeter(b Bounds, stop context.CancelCauseFunc) *meter {
	return &meter{bounds: b, stop: stop, living: map[string]sandbox{}}
}

// admit lets one create happen, or says which bound it would exceed, which ends the run. Each needs
// one of began.
func (m *meter) admit(rate float64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := error(nil)
	switch {
	case m.closed:
		return errEnded
	case m.made+m.pending >= m.bounds.Sandboxes:
		err = errSandboxes
	case m.committed(time.Now())+rate*keptBack.Seconds() > m.bounds.USD:
		err = errMoney
	}
	if err != nil {
		m.stop(err)
		return err
	}
	m.pending++
	m.creating.Add(1)
	m.rate = max(m.rate, rate)
	return nil
}

// began says what became of a create. An empty ID: nothing was made.
func (m *meter) began(id string, s sandbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending--
	m.creating.Done()
	if _, known := m.living[id]; id != "" && !known {
		m.made++
		m.living[id] = s
	}
}

// extended says that a sandbox may live until then. One that was made to live shorter counts as if
// it were not.
func (m *meter) extended(id string, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.living[id]; ok && until.After(s.until) {
		s.until = until
		m.living[id] = s
	}
}

// close refuses further creates, and waits for those that are under way: what they make is known
// then.
func (m *meter) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.creating.Wait()
}

// gone says that a sandbox has ended.
func (m *meter) gone(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.living[id]; ok {
		delete(m.living, id)
		t := s.seconds(time.Now())
		m.ended.Seconds += t
		m.ended.USD += t * s.rate
	}
}

// total is what was spent until now. m.mu is held.
func (m *meter) total(now time.Time) Spent {
	s := m.ended
	s.Sandboxes = m.made
	for _, l := range m.living {
		t := l.seconds(now)
		s.Seconds += t
		s.USD += t * l.rate
	}
	return s
}

// committed is what is spent when all that there is lives until it has been removed. m.mu is held.
func (m *meter) committed(now time.Time) float64 {
	usd := m.total(now).USD + float64(m.pending)*m.rate*keptBack.Seconds()
	for _, l := range m.living {
		usd += l.rate * keptBack.Seconds()
	}
	return usd
}

func (m *meter) spent() Spent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total(time.Now())
}

// alive returns the sandboxes whose end was not seen.
func (m *meter) alive() (ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.living {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// watch ends the run when what there is has used the budget up, until done is called.
func (m *meter) watch() (done func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case now := <-tick.C:
				m.mu.Lock()
				over := m.committed(now) > m.bounds.USD
				m.mu.Unlock()
				if over {
					m.stop(errMoney)
				}
			}
		}
	})
	return sync.OnceFunc(func() { close(end); wg.Wait() })
}
