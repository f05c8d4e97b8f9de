package flymachines

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/remote"
	"github.com/execbroker/execbroker/internal/store"
)

// rate is what Fly's documentation allows: so many calls at once, and then so many in a second.
type rate struct{ perSecond, burst float64 }

var (
	commonRate = rate{1, 3}
	getRate    = rate{5, 10}
)

// rates keeps calls below the limits of the API, so that a 429 is the exception. Fly counts calls
// about an app for all who use it. Programs of one user on one machine share these counts in a
// file. Calls about one Machine come from its holder, and each backend counts its own.
type rates struct {
	api, app string
	factor   float64
	file     string // of the calls about apps; empty: it cannot be had, and they are counted for this backend

	mu  sync.Mutex
	own buckets
}

// buckets has for each action on a target the time at which its whole burst is free again.
type buckets map[string]time.Time

const (
	maxBuckets = 10000
	// maxDebt is how far calls are put off at most. What is later comes from a clock that was set
	// back.
	maxDebt = 15 * time.Minute
)

// ratesFile and ratesLock are in the cache directory.
const (
	ratesFile = "rates.json"
	ratesLock = "rates.lock"
)

// ratesOf returns the rates of an app.
func ratesOf(env driver.Env, api, app string, factor float64) *rates {
	r := &rates{api: api, app: app, factor: factor, own: buckets{}}
	if cache, err := env.Cache(); err == nil { // else this program has no place for it
		if dir := filepath.Join(cache, Type); os.MkdirAll(dir, 0o700) == nil {
			r.file = filepath.Join(dir, ratesFile)
		}
	}
	return r
}

// refused takes note of a 429: a program that does not share this file uses the app as well. So all
// that share it wait.
func (r *rates) refused(ctx context.Context, action, target string) {
	r.change(ctx, action, target, func(b buckets, key string, limit rate, now time.Time) {
		if all := now.Add(seconds(limit.burst / limit.perSecond)); b[key].Before(all) {
			b[key] = all
		}
	})
}

// wait waits until an action on a target may be called.
func (r *rates) wait(ctx context.Context, action, target string) error {
	var pause time.Duration
	r.change(ctx, action, target, func(b buckets, key string, limit rate, now time.Time) { pause = b.take(key, limit, now) })
	if pause <= 0 {
		return ctx.Err()
	}
	return remote.Pause(ctx, pause)
}

// take reserves a call and returns how long to wait for it.
func (b buckets) take(key string, limit rate, now time.Time) time.Duration {
	at := b[key]
	if at.Before(now) || at.Sub(now) > maxDebt {
		at = now
	}
	b[key] = at.Add(seconds(1 / limit.perSecond))
	return b[key].Sub(now) - seconds(limit.burst/limit.perSecond)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// change calls f with the bucket of an action on a target.
func (r *rates) change(ctx context.Context, action, target string, f func(b buckets, key string, limit rate, now time.Time)) {
	limit := commonRate
	if action == actionGet {
		limit = getRate
	}
	factor := cmp.Or(r.factor, 1)
	limit = rate{limit.perSecond * factor, max(1, limit.burst*factor)}
	if target == r.app && r.file != "" {
		err := inFile(ctx, r.file, func(b buckets) { f(b, r.api+" "+target+" "+action, limit, time.Now()) })
		if err == nil || ctx.Err() != nil {
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.own) > maxBuckets {
		r.own.forget(time.Now())
	}
	f(r.own, action+" "+target, limit, time.Now())
}

// forget removes entries whose burst is free again.
func (b buckets) forget(now time.Time) {
	maps.DeleteFunc(b, func(_ string, at time.Time) bool { return !at.After(now) })
}

// fileTurn is held while this program uses a file of buckets. The lock is for other programs.
var fileTurn sync.Mutex

// lockPause is the time between attempts to get the lock, which nobody holds for long.
const lockPause = 5 * time.Millisecond

// inFile calls f with the buckets in a file. A file that cannot be read counts as empty.
func inFile(ctx context.Context, name string, f func(buckets)) error {
	fileTurn.Lock()
	defer fileTurn.Unlock()
	var unlock func()
	for {
		var err error
		if unlock, err = store.TryLock(filepath.Join(filepath.Dir(name), ratesLock)); err == nil {
			break
		}
		if !errors.Is(err, store.ErrLocked) {
			return err
		}
		if err := remote.Pause(ctx, lockPause); err != nil {
			return err
		}
	}
	defer unlock()
	b := buckets{}
	if data, err := os.ReadFile(name); err == nil && json.Unmarshal(data, &b) != nil || b == nil {
		b = buckets{}
	}
	b.forget(time.Now())
	f(b)
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o600)
}
