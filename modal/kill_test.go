package modal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
)

// hostProgram is set for a program that creates a session and is killed: the owner of that.
const hostProgram = "EXECBROKER_TEST_MODAL_HOST"

// holdSession creates a session, runs something in it for ever with a short idle TTL, and says so.
func holdSession(ctx context.Context) error {
	box, err := Open(ctx, driver.Env{Owner: os.Getenv(hostProgram)}, Config{
		App: testApp, TokenID: driver.Secret{Env: idVariable}, TokenSecret: driver.Secret{Env: secretVariable}, Image: plainImage,
	})
	if err != nil {
		return err
	}
	s, err := box.Create(ctx, executor.Spec{})
	if err != nil {
		return err
	}
	_, err = s.Run(ctx, executor.Request{Code: "print('on', flush=True)\nimport time\ntime.sleep(600)"}, func(ev executor.Event) error {
		if ev.Kind != executor.EventStdout {
			return nil
		}
		_, err := s.KeepAlive(ctx, 3*time.Second) // not sooner: the run has to begin
		fmt.Println("runs")
		return err
	})
	return errors.Join(err, errors.New("it was not killed"))
}

// A program is killed in the middle of a run. Its Sandbox ends by itself.
func TestKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id, secret := w.Token()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverVariable+"="+w.URL(), idVariable+"="+id, secretVariable+"="+secret, hostProgram+"="+w.owner)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said [4]byte
	if _, err := out.Read(said[:]); err != nil || string(said[:]) != "runs" {
		t.Fatalf("got %q, %v", said, err)
	}
	w.left(t, 1)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it says that it was killed
	w.empty(t)
}
