package wheels

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
)

// Store downloads wheels into a directory. Any number of processes may share the directory: a file
// gets its name only when it is complete and checked, and is checked again whenever it is read.
type Store struct {
	Dir    string
	Base   string       // URL of the distribution's directory; empty: downloads are not possible
	Client *http.Client // nil: a client that tolerates slow connections but not dead ones

	flights singleflight.Group
}

// ErrOffline says that a wheel is not in a directory, was not downloaded before, and cannot be
// downloaded because there is no address.
var ErrOffline = errors.New("not there, and no address to fetch it from")

// ChecksumError says that a file does not have the checksum in the lock file.
type ChecksumError struct{ File, Want, Got string }

// Error implements error.
func (e *ChecksumError) Error() string {
	return fmt.Sprintf("%s: checksum %s, want %s: it was damaged or exchanged", e.File, e.Got, e.Want)
}

// Fetch makes sure that every wheel is available. After each wheel it calls progress, if that is
// not nil, one call at a time.
func (s *Store) Fetch(ctx context.Context, ws []Wheel, progress func(done, total int, name string)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	finished := make(chan string)
	for _, w := range ws {
		g.Go(func() error {
			if _, err := s.path(ctx, w); err != nil {
				return err
			}
			select {
			case finished <- w.Name:
			case <-ctx.Done():
			}
			return nil
		})
	}
	done := make(chan error, 1)
	go func() { done <- g.Wait() }()
	for n := 0; ; {
		select {
		case name := <-finished:
			if n++; progress != nil {
				progress(n, len(ws), name)
			}
		case err := <-done:
			return err
		}
	}
}

// Open returns the checked content of a wheel. Fetch must have been called before.
func (s *Store) Open(ctx context.Context, w Wheel) ([]byte, error) {
	p, err := s.path(ctx, w)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(p)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	if got := hex.EncodeToString(sum[:]); got != w.SHA256 {
		if w.local == "" {
			os.Remove(p) // so that the next call downloads it again
		}
		return nil, &ChecksumError{File: p, Want: w.SHA256, Got: got}
	}
	return b, nil
}

// path returns the path of the file of w, and downloads it if necessary.
func (s *Store) path(ctx context.Context, w Wheel) (string, error) {
	if w.local != "" {
		return w.local, nil
	}
	p := filepath.Join(s.Dir, w.SHA256[:16]+"-"+w.File)
	if exists(p) {
		return p, nil
	}
	if s.Base == "" {
		return "", fmt.Errorf("%s: %w", w.File, ErrOffline)
	}
	// If the context of another caller ends a shared download, try once more alone.
	for {
		_, err, shared := s.flights.Do(p, func() (any, error) {
			if exists(p) { // another download has finished since
				return nil, nil
			}
			return nil, s.download(ctx, w, p)
		})
		if err != nil && shared && ctx.Err() == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
			continue
		}
		return p, err
	}
}

func (s *Store) client() *http.Client {
	if s.Client != nil {
		return s.Client
	}
	return &http.Client{Timeout: 5 * time.Minute}
}

// download downloads w to a temporary name, checks it and renames it.
func (s *Store) download(ctx context.Context, w Wheel, to string) (err error) {
	address, err := url.JoinPath(s.Base, w.File)
	if err != nil {
		return fmt.Errorf("%s: %w", w.File, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", w.File, err)
	}
	res, err := s.client().Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", w.File, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: the server answered %s", w.File, strings.TrimSpace(res.Status))
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.Dir, ".partial-*")
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(res.Body, maxWheel+1))
	if err != nil {
		return fmt.Errorf("%s: %w", w.File, err)
	}
	if n > maxWheel {
		return fmt.Errorf("%s: more than %d bytes", w.File, maxWheel)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != w.SHA256 {
		return &ChecksumError{File: w.File, Want: w.SHA256, Got: got}
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), to)
}
