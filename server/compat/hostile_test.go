package compat

import (
	"strings"
	"testing"

	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/internal/front/fronttest"
)

func TestClients(t *testing.T) {
	fronttest.Clients(t, func(t *testing.T) fronttest.Front {
		key := "X-API-Key: " + alice
		f := fronttest.Front{
			Handler: newWorld(t, fake.Options{}, Config{}).s,
			Refused: [][]string{{"POST /nothing"}, {"POST /piston/nothing"}},
			Answers: [][]string{{"GET /dify/health"}, {"GET /librechat/health"}, {"GET /piston/api/v2/runtimes", key}},
		}
		for _, a := range apis {
			for pattern, rt := range a.routes {
				method, path, _ := strings.Cut(pattern, " ")
				if rt.run == nil {
					continue
				}
				line := method + " /" + a.name + a.bases[0] + strings.TrimSuffix(path, "{$}")
				f.Refused = append(f.Refused, []string{line})
				f.Reads = append(f.Reads, []string{line, key, "Content-Type: application/json"})
			}
		}
		return f
	})
}
