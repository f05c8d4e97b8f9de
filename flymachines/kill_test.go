package flymachines

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// hostProgram is set for a program that creates a session and is killed. It has the addresses of
// the emulator, the owner, the address of an index, and a directory for its cache.
const hostProgram = "EXECBROKER_TEST_FLY_HOST"

// holdSession creates a session, runs something in it for ever with a short idle TTL, and says so.
// Meanwhile it waits for packages.
func holdSession(ctx context.Context) error {
	at := strings.Fields(os.Getenv(hostProgram))
	box, err := Open(ctx, driver.Env{Owner: at[2], CacheDir: at[4]}, Config{
		App: testApp, Token: driver.Secret{Env: tokenVariable}, API: at[0], Proxy: at[1], Rate: 1000,
		Packages: driver.Packages{Allow: map[executor.Language][]string{executor.Python: {"six"}}, IndexURL: at[3], Insecure: true},
	})
	if err != nil {
		return err
	}
	s, err := box.Create(ctx, executor.Spec{})
	if err != nil {
		return err
	}
	fmt.Println("created")
	_, err = s.Run(ctx, executor.Request{Language: executor.Python, Code: "import time\ntime.sleep(1)"}, nil)
	if err != nil {
		return err
	}
	fmt.Println("ran")
	go s.Install(ctx, executor.Packages{Names: []string{"six"}}, nil) //nolint:errcheck // nobody answers
	_, err = s.Run(ctx, executor.Request{Language: executor.Python, Code: "import time\ntime.sleep(600)"}, func(ev executor.Event) error {
		_, err := s.KeepAlive(ctx, 3*time.Second) // not sooner: the run has to begin
		fmt.Println("runs")
		return err
	})
	return errors.Join(err, errors.New("it was not killed"))
}

// A program dies while it creates a session: it has made the Machine, and nobody comes to set that
// up. It ends by itself.
func TestNobodyComes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := w.config()
	cfg.Image, cfg.Languages, cfg.Timeout = plainImage, nil, driver.Duration(6*time.Second)
	b, err := newBackend(t.Context(), driverEnv(w), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	c := &runner.Start{Create: &driver.Create{ID: strings.ToLower(rand.Text()), Spec: executor.Spec{Languages: []executor.Language{executor.Python}}}}
	in, _, err := b.launch(c)
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.make(t.Context(), in, c.ID)
	if err != nil {
		t.Fatal(err)
	}
	w.empty(t)
	m, err = b.api.get(t.Context(), m.ID)
	if err != nil {
		t.Fatal(err)
	}
	if f := endOf(m, 0); !f.gone || !f.known || f.requested || f.code != 0 {
		t.Errorf("got %+v, want that its program has ended of itself, without error", f)
	}
}

// A program is killed in the middle of a run, and while packages are fetched for it. Its Machines
// end by themselves, and the API removes them.
func TestKilled(t *testing.T) {
	t.Parallel()
	w := newPackagesWorld(t)
	asked, answer := w.Pause(t)
	defer close(answer)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), tokenVariable+"="+w.Token(), hostProgram+"="+strings.Join([]string{w.API, w.Edge, w.owner, w.URL + "/simple", w.cache}, " "))
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "runs" {
	}
	select {
	case <-asked:
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing fetches packages")
	}
	if n := len(w.machines(t)); n != 2 {
		t.Errorf("got %d Machines, want that of the session and one that fetches", n)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it says that it was killed
	w.none(t)
}
