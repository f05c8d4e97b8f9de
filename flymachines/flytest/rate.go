package flytest

import (
	"math"
	"sync"
	"time"
)

// limiter counts requests as Fly does: for each method of the API, and for each Machine or, where
// there is none, each app.
type limiter struct {
	rate float64

	mu      sync.Mutex
	buckets map[bucketKey]*bucket
}

type bucketKey struct {
	method string // of the API: its path and what is done with it
	target string
}

type bucket struct {
	tokens float64
	at     time.Time
}

func newLimiter(rate float64) *limiter {
	return &limiter{rate: rate, buckets: map[bucketKey]*bucket{}}
}

// maxBuckets bounds what is remembered. A bucket that has not been used for a while is full again
// anyhow.
const maxBuckets = 10000

// of returns how often an operation may be asked for in a second, and how often at once.
func (l *limiter) of(op Op) (perSecond, burst float64) {
	switch op {
	case OpGet:
		return 5, 10
	case OpDeleteApp:
		return 100.0 / 60, 100
	case OpWait:
		return 5, 10 // unknown; a wait is a request that lasts
	default:
		return 1, 3
	}
}

// take reports whether an operation may be done now.
func (l *limiter) take(op Op, method, target string, now time.Time) bool {
	if math.IsInf(l.rate, 1) || op == OpRelease || op == OpGraphQL {
		return true
	}
	perSecond, burst := l.of(op)
	perSecond, burst = perSecond*l.rate, max(1, burst*l.rate)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.buckets) >= maxBuckets {
		for k, b := range l.buckets {
			if now.Sub(b.at) > time.Minute {
				delete(l.buckets, k)
			}
		}
	}
	b := l.buckets[bucketKey{method, target}]
	if b == nil {
		b = &bucket{tokens: burst, at: now}
		l.buckets[bucketKey{method, target}] = b
	}
	b.tokens = min(burst, b.tokens+now.Sub(b.at).Seconds()*perSecond)
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// limit refuses a request that exceeds Fly's rates.
func (s *Server) limit(c *call) error {
	target := ""
	switch {
	case c.m != nil:
		target = c.app.Name + "/" + c.m.id
	case c.app != nil:
		target = c.app.Name
	}
	if !s.limits.take(c.op, c.pattern, target, time.Now()) {
		return errRate()
	}
	return nil
}
