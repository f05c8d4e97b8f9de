package nemo_test

import (
	"testing"

	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/front/fronttest"
	"github.com/execbroker/execbroker/server"
	"github.com/execbroker/execbroker/server/nemo"
)

func TestClients(t *testing.T) {
	fronttest.Clients(t, func(t *testing.T) fronttest.Front {
		const key = "key-of-alice-0123456789"
		var keys server.Keys
		if err := keys.Add(key, server.Client{}); err != nil {
			t.Fatal(err)
		}
		return fronttest.Front{
			Handler: serve(t, open(t, fake.New(fake.Options{})), nemo.Config{Keys: keys}),
			Refused: [][]string{{"POST /execute"}, {"PUT /execute"}, {"POST /nothing"}, {"POST /execute", "Authorization: Bearer " + key, "Content-Type: text/plain"}},
			Reads:   [][]string{{"POST /execute", "Authorization: Bearer " + key, "Content-Type: application/json"}},
			Answers: [][]string{{"GET /"}, {"GET /execute"}},
		}
	})
}
