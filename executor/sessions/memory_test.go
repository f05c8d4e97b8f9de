package sessions_test

import (
	"testing"

	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/executor/sessions/storetest"
)

func TestMemoryStore(t *testing.T) {
	storetest.Test(t, func(*testing.T) func() sessions.Store {
		s := sessions.NewMemoryStore()
		return func() sessions.Store { return s }
	})
}
