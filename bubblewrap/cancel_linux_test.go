package bubblewrap

import (
	"context"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// A start whose context ends returns, at whatever moment of bwrap's own start that is.
func TestStartEnds(t *testing.T) {
	who, err := identify(false)
	check(t, err)
	for i := range 400 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%100)*100*time.Microsecond)
		over := make(chan error, 1)
		go func() {
			b := &box{want: executor.Limits{DiskBytes: defaultDisk}, who: who, note: "{}"}
			p, conn, err := start(ctx, b, []string{python, "-c", ""})
			if err == nil {
				conn.Close()
				err = p.kill(context.WithoutCancel(ctx))
			}
			over <- err
		}()
		select {
		case err := <-over:
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("attempt %d has not returned: what was begun holds its pipes", i)
		}
		cancel()
	}
}
