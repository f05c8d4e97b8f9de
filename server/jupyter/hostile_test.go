package jupyter

import (
	"testing"

	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/front/fronttest"
	"github.com/execbroker/execbroker/server"
)

func TestClients(t *testing.T) {
	fronttest.Clients(t, func(t *testing.T) fronttest.Front {
		var cfg Config
		if err := cfg.Keys.Add(alice, server.Client{Subject: "alice"}); err != nil {
			t.Fatal(err)
		}
		x, err := fake.New(fake.Options{}).Open(driver.Env{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(own{x}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			for _, c := range []func() error{s.Close, x.Close} {
				if err := c(); err != nil {
					t.Error(err)
				}
			}
		})
		token := "Authorization: token " + alice
		return fronttest.Front{
			Handler: s,
			Refused: [][]string{{"POST /api/kernels"}, {"PUT /api/contents/a"}, {"POST /nothing"}, {"POST /nothing", token}, {"POST /api/kernels", token, "Sec-Fetch-Site: cross-site"}},
			Reads:   [][]string{{"POST /api/kernels", token}, {"POST /api/sessions", token}, {"PUT /api/contents/a", token}},
			Answers: [][]string{{"GET /api"}, {"GET /api/status"}, {"GET /api/status", token}, {"GET /api/kernelspecs", token}},
		}
	})
}
