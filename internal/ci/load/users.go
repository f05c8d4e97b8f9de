package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// plan says what the users of a server do. Each comes at a random moment while they arrive, makes a
// session and runs code in it, and then again and again after a pause, until some time after all
// are there.
type plan struct {
	users  int
	arrive time.Duration // until the last one comes
	lasts  time.Duration // from when all have had their first answer
	think  time.Duration // between an answer and the next run: between nothing and twice as much, evenly
}

// server is what they use.
type server struct {
	url, key string
}

// measured is what was seen. Times are of whole requests, as a client sees them.
type measured struct {
	cold    series        // of making a session and its first run together
	during  series        // of runs while others arrive
	warm    series        // of runs when all are there
	arrived time.Duration // until all were
}

// series are requests of one kind.
type series struct {
	mu     sync.Mutex
	took   []time.Duration // of those that went well
	failed int
	first  error // that failed
}

func (s *series) add(took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.took = append(s.took, took)
		return
	}
	if s.failed++; s.first == nil {
		s.first = err
	}
}

// program is what users run: it changes the state of the session, computes a little, and prints
// what only that session can know.
const program = `n = 1 if %d == 1 else n + 1
total = sum(i * i for i in range(10_000))
print(%d, n, total)`

const total = "333283335000"

// drive has the users do it. moment is called with 0 when all are there, then 1 in the middle and 2
// at the end.
func (p plan) drive(ctx context.Context, s server, moment func(int)) *measured {
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: p.users}}
	defer c.CloseIdleConnections()
	var m measured
	var all atomic.Bool
	var users, there sync.WaitGroup
	there.Add(p.users)
	done := make(chan struct{})
	began := time.Now()
	for i := range p.users {
		users.Go(func() {
			if !pause(ctx, nil, time.Duration(rand.Float64()*float64(p.arrive))) {
				there.Done()
				return
			}
			id, err := s.cold(ctx, c, &m, i)
			there.Done()
			for n := 2; err == nil; n++ {
				if !pause(ctx, done, time.Duration(rand.Float64()*2*float64(p.think))) {
					return
				}
				kind := &m.during
				if all.Load() {
					kind = &m.warm
				}
				began := time.Now()
				err = s.run(ctx, c, id, i, n)
				kind.add(time.Since(began), err)
			}
		})
	}
	there.Wait()
	m.arrived = time.Since(began)
	all.Store(true)
	for k := range 3 {
		if k > 0 {
			pause(ctx, nil, p.lasts/2)
		}
		moment(k)
	}
	close(done)
	users.Wait()
	return &m
}

// pause waits and reports whether to go on.
func pause(ctx context.Context, done <-chan struct{}, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-done:
	case <-ctx.Done():
	}
	return false
}

// cold makes a session and runs code in it for the first time.
func (s server) cold(ctx context.Context, c *http.Client, m *measured, i int) (id string, err error) {
	began := time.Now()
	var made struct{ ID string }
	if err = s.post(ctx, c, "/v1/sessions", map[string]any{"languages": []string{"python"}}, http.StatusCreated, &made); err == nil {
		err = s.run(ctx, c, made.ID, i, 1)
	}
	m.cold.add(time.Since(began), err)
	return made.ID, err
}

// run is the n-th run of user i, whose answer has to be right.
func (s server) run(ctx context.Context, c *http.Client, id string, i, n int) error {
	var res struct{ Status, Stdout, Stderr string }
	err := s.post(ctx, c, "/v1/sessions/"+id+"/run", map[string]any{"code": fmt.Sprintf(program, n, i)}, http.StatusOK, &res)
	if want := fmt.Sprintln(i, n, total); err == nil && (res.Status != "ok" || res.Stdout != want) {
		err = fmt.Errorf("got %s %q %q, want %q", res.Status, res.Stdout, res.Stderr, want)
	}
	return err
}

func (s server) post(ctx context.Context, c *http.Client, path string, in any, status int, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+s.key)
	res, err := c.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != status {
		return fmt.Errorf("got %d %s", res.StatusCode, text)
	}
	return json.Unmarshal(text, out)
}
