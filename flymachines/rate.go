package flymachines

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// bucket lets a number of calls pass at once and then so many in a second.
type bucket struct {
	tokens float64
	at     time.Time
}

// rate is what Fly's documentation allows.
type rate struct{ perSecond, burst float64 }

var (
	commonRate = rate{1, 3}
	getRate    = rate{5, 10}
)

// rates keeps below the limits of the API, so that a 429 is the exception: it counts for everybody who uses the app.
type rates struct {
	key    rateKey
	users  int // guarded by inUse.mu
	factor float64

	mu      sync.Mutex
	buckets map[string]*bucket
}

const maxBuckets = 10000

// rateKey says what Fly counts together, as far as a program can know.
type rateKey struct {
	api, app string
	factor   float64
}

// inUse are the rates of this program: several backends over one app have them in common.
var inUse = struct {
	mu    sync.Mutex
	rates map[rateKey]*rates
}{rates: map[rateKey]*rates{}}

// ratesOf returns the rates of an app. Each call needs one of done.
func ratesOf(api, app string, factor float64) *rates {
	k := rateKey{api, app, factor}
	inUse.mu.Lock()
	defer inUse.mu.Unlock()
	r := inUse.rates[k]
	if r == nil {
		r = &rates{key: k, factor: factor, buckets: map[string]*bucket{}}
		inUse.rates[k] = r
	}
	r.users++
	return r
}

// done says that one of the users of r has ended.
func (r *rates) done() {
	inUse.mu.Lock()
	defer inUse.mu.Unlock()
	if r.users--; r.users == 0 {
		delete(inUse.rates, r.key)
	}
}

// refused takes note of a 429. Other programs use the app as well, which is all that is known of them: so everybody in this one waits.
func (r *rates) refused(action, target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.buckets[action+" "+target]; b != nil {
		b.tokens, b.at = min(b.tokens, 0), time.Now()
	}
}

// wait waits until an action on a target may be called.
func (r *rates) wait(ctx context.Context, action, target string) error {
	limit := commonRate
	if action == actionGet {
		limit = getRate
	}
	f := cmp.Or(r.factor, 1)
	pause := r.take(action+" "+target, limit.perSecond*f, max(1, limit.burst*f), time.Now())
	if pause <= 0 {
		return ctx.Err()
	}
	return sleep(ctx, pause)
}

// take takes a token, perhaps one that is still to come, and returns when that will be.
func (r *rates) take(key string, perSecond, burst float64, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.buckets) > maxBuckets {
		for k, b := range r.buckets {
			if b.tokens+now.Sub(b.at).Seconds()*perSecond >= burst {
				delete(r.buckets, k)
			}
		}
	}
	b := r.buckets[key]
	if b == nil {
		b = &bucket{tokens: burst, at: now}
		r.buckets[key] = b
	}
	b.tokens = min(burst, b.tokens+now.Sub(b.at).Seconds()*perSecond)
	b.at = now
	b.tokens--
	return time.Duration(-b.tokens / perSecond * float64(time.Second))
}
