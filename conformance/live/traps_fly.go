package live

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
)

// machinesPath stands for site.machines in the path of a request.
const machinesPath = "{machines}"

func (s *site) machines() string { return machines(s.svc) }

// exec runs a command by Fly's own way, which the adapter does not use.
func exec(body map[string]any) func(s *site, id string) (string, string, any) {
	return func(s *site, id string) (string, string, any) {
		return http.MethodPost, s.machines() + "/" + id + "/exec", body
	}
}

func get(suffix string) func(s *site, id string) (string, string, any) {
	return func(s *site, id string) (string, string, any) {
		return http.MethodGet, s.machines() + "/" + id + suffix, nil
	}
}

// flyTraps are the facts about the Machines API that the adapter and its emulator rely on.
var flyTraps = []trap{
	without("token-wrong", "a token that is none: 401", request{http.MethodGet, machinesPath, nil}, http.StatusUnauthorized, "", "Authorization", "Bearer execbroker-wrong-token"),
	without("machine-never-seen", "a Machine that never was: 404", request{http.MethodGet, machinesPath + "/00000000000000", nil}, http.StatusNotFound, ""),
	{name: "metadata-filter", expect: "a list by metadata.KEY has the Machines with that value alone", look: func(ctx context.Context, s *site) (string, bool, error) {
		if _, err := s.sandbox(ctx); err != nil {
			return "", false, err
		}
		own, err := ofSession(ctx, s, s.session.Info().Handle.Session)
		if err != nil {
			return "", false, err
		}
		other, err := ofSession(ctx, s, "nobody")
		return fmt.Sprintf("%d with its value, %d with another", len(own), len(other)), len(own) == 1 && len(other) == 0, err
	}},
	{name: "request-id", expect: "every answer has a fly-request-id", look: func(ctx context.Context, s *site) (string, bool, error) {
		a, err := s.call(ctx, http.MethodGet, s.machines(), nil)
		if err != nil {
			return "", false, err
		}
		has := a.header.Get("Fly-Request-Id") != ""
		return fmt.Sprint(has), has, nil
	}},
	on("wait-over-60-seconds", "a wait of 90 s: 400", get("/wait?state=started&timeout=90"), http.StatusBadRequest, "inside range"),
	on("wait-expires", "a wait that is not fulfilled: 408", get("/wait?state=stopped&timeout=1"), http.StatusRequestTimeout, "deadline_exceeded"),
	on("exec-over-60-seconds", "an exec of 61 s is refused", exec(map[string]any{"command": []string{"true"}, "timeout": 61}), http.StatusBadRequest, "60 seconds"),
	on("exec-exit-code", "a command that fails: 200", exec(map[string]any{"command": []string{"sh", "-c", "exit 3"}, "timeout": 10}), http.StatusOK, `"exit_code":3`),
	on("exec-stdin", "standard input is dropped: nothing comes out of cat", exec(map[string]any{"command": []string{"cat"}, "stdin": "heard", "timeout": 10}), http.StatusOK, `"stdout":""`),
	on("exec-oversized", "a request of more than 16 KiB: 200 with a complaint in stdout",
		exec(map[string]any{"command": []string{"true"}, "stdin": strings.Repeat("x", 17<<10)}), http.StatusOK, "PayloadTooLarge"),
	on("metadata-lost-race", "a change of metadata of another version: 412", func(s *site, id string) (string, string, any) {
		return http.MethodPatch, s.machines() + "/" + id + "/metadata",
			map[string]any{"metadata": map[string]any{"execbroker_live": "1"}, "machine_version": "01AAAAAAAAAAAAAAAAAAAAAAAA"}
	}, http.StatusPreconditionFailed, ""),
	on("name-taken", "a create with the name of another Machine: 409 with its ID", func(s *site, _ string) (string, string, any) {
		config, _ := s.about["config"].(map[string]any)
		return http.MethodPost, s.machines(), map[string]any{"name": s.about["name"], "config": config, "skip_launch": true}
	}, http.StatusConflict, "already exists"),
	{name: "rate-limit", expect: "of 12 lists at once some are answered 429; Retry-After is not known", look: func(ctx context.Context, s *site) (string, bool, error) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		limited, after, failed := 0, []string{}, error(nil)
		for range 12 {
			wg.Go(func() {
				a, err := s.call(ctx, http.MethodGet, s.machines(), nil)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					failed = err
				case a.status == http.StatusTooManyRequests:
					limited++
					after = append(after, a.header.Get("Retry-After"))
				}
			})
		}
		wg.Wait()
		return fmt.Sprintf("%d of 12, Retry-After %q", limited, after), limited > 0, failed
	}},
	{name: "files-size", open: true, expect: "not known: how much files may hold", look: func(ctx context.Context, s *site) (string, bool, error) {
		if _, err := s.sandbox(ctx); err != nil {
			return "", false, err
		}
		var seen []string
		for _, kib := range []int{64, 128, 256, 1024} {
			config, _ := s.about["config"].(map[string]any)
			next := maps.Clone(config)
			next["files"] = []any{map[string]any{"guest_path": "/data", "raw_value": base64.StdEncoding.EncodeToString(make([]byte, kib<<10))}}
			a, err := s.call(ctx, http.MethodPost, s.machines(), map[string]any{"config": next, "skip_launch": true})
			if err != nil {
				return "", false, err
			}
			if a.status >= 300 {
				seen = append(seen, fmt.Sprintf("%d KiB: %v", kib, a))
				break
			}
			seen = append(seen, fmt.Sprintf("%d KiB: %d", kib, a.status))
			if err := s.proxy.destroy(ctx, idOf(a.body)); err != nil {
				return "", false, err
			}
		}
		return strings.Join(seen, "; "), true, nil
	}},
	{name: "destroyed-machine", expect: "a Machine that was destroyed: 200 with state destroyed or destroying, not 404", look: func(ctx context.Context, s *site) (string, bool, error) {
		id, err := s.sandbox(ctx)
		if err != nil {
			return "", false, err
		}
		err = s.session.Close()
		s.session, s.id = nil, ""
		if err != nil {
			return "", false, err
		}
		var m struct{ State string }
		a, err := s.call(ctx, http.MethodGet, s.machines()+"/"+id, nil)
		if err != nil {
			return "", false, err
		}
		if a.status == http.StatusOK {
			err = json.Unmarshal(a.body, &m)
		}
		return fmt.Sprintf("%d %s", a.status, m.State), strings.HasPrefix(m.State, "destroy"), err
	}},
}
