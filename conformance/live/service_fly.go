package live

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// flyService is Fly.io.
func flyService() *service {
	return &service{
		name: "Fly.io", address: "api", secret: "token",
		price: price{
			what:   "about 2.02 USD a month for a shared CPU with 256 MB, 32 USD for a performance CPU with 2 GB, 5 USD for each GB more, by the second",
			source: "https://fly.io/docs/about/pricing/", read: "August 2026",
			rate: flyRate,
			not:  "regions that cost more than the cheapest, traffic (0.02 to 0.12 USD a GB), addresses",
		},
		texts: map[string]string{"api": "https://api.machines.dev", "app": ""},
		sandboxes: func(words []string) ([]string, bool) {
			if len(words) < 4 || words[0] != "v1" || words[1] != "apps" || words[3] != "machines" {
				return nil, false
			}
			return words[4:], true
		},
		remove:        func(s *service, id string) string { return machines(s) + "/" + id + "?force=true" },
		authorization: func(key string) (string, string) { return "Authorization", flyToken(key) },
		find:          findMachine,
		traps:         flyTraps,
	}
}

// machines is where the Machines of the app are.
func machines(s *service) string { return "/v1/apps/" + s.texts["app"] + "/machines" }

// flyToken is how Fly.io takes a token: macaroons have a scheme of their own.
func flyToken(key string) string {
	switch {
	case strings.HasPrefix(key, "FlyV1 "), strings.HasPrefix(key, "Bearer "):
		return key
	case strings.HasPrefix(key, "fm"):
		return "FlyV1 " + key
	}
	return "Bearer " + key
}

// ofSession lists the Machines that have the ID of a session in their metadata.
func ofSession(ctx context.Context, s *site, id string) (list []map[string]any, err error) {
	err = s.decode(ctx, http.MethodGet, s.machines()+"?metadata.execbroker_id="+id, nil, &list)
	return list, err
}

// findMachine finds the Machine of the session that traps share.
func findMachine(ctx context.Context, s *site) (string, error) {
	list, err := ofSession(ctx, s, s.session.Info().Handle.Session)
	if err != nil {
		return "", err
	}
	if len(list) != 1 {
		return "", fmt.Errorf("%d Machines have the ID of the session in their metadata, want 1", len(list))
	}
	s.about = list[0]
	return fmt.Sprint(list[0]["id"]), nil
}

// flyRate is what a Machine costs that a create asks for.
func flyRate(body []byte) float64 {
	var in struct {
		Config struct {
			Guest struct {
				Kind     string `json:"cpu_kind"`
				CPUs     int    `json:"cpus"`
				MemoryMB int    `json:"memory_mb"`
			}
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return -1
	}
	g := in.Config.Guest
	g.CPUs = max(g.CPUs, 1)
	each, least := 2.02, 256
	switch g.Kind {
	case "", "shared":
	case "performance":
		each, least = 32, 2048
	default:
		return -1
	}
	return (float64(g.CPUs)*each + 5*float64(max(g.MemoryMB-g.CPUs*least, 0))/1024) / month
}
