package runner

import (
	"testing"
	"time"
)

// TestConsumed: the processor time of a sandbox has that of processes that a run has left running,
// and of those that have ended.
func TestConsumed(t *testing.T) {
	t.Parallel()
	s := start(t, host)
	consumed := func() time.Duration {
		st, err := s.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.CPU
	}
	began := consumed()
	r := s.code(t, "import subprocess, sys\np = subprocess.Popen([sys.executable, '-c', 'while True: pass'])")
	if r.err != nil || r.Exception != nil {
		t.Fatalf("got %+v", r)
	}
	eventually(t, "the process is seen", func() bool { return consumed() > began+300*time.Millisecond })
	s.code(t, "p.kill()\np.wait()")
	if got := consumed(); got < began+300*time.Millisecond {
		t.Errorf("%v after the end of the process", got)
	}
}
