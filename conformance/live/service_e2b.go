package live

import "context"

// e2bService is E2B, or what speaks its protocols. The price is that of the example in its
// documentation, for any template up to that size: what a CPU and a GB cost by themselves, the page
// shows in a calculator only.
func e2bService() *service {
	return &service{
		name: "E2B", address: "api_url", secret: "api_key", standard: "E2B_API_KEY",
		price: price{
			what:   "0.468 USD an hour for a sandbox with 8 vCPU and 4 GB; smaller templates, such as base, cost less and are counted as that",
			source: "https://e2b.dev/docs/billing", read: "November 2026",
			rate: func([]byte) float64 { return 0.468 / hour },
			not:  "templates with more than 8 vCPU or 4 GB, storage of paused sandboxes, the plan itself",
		},
		texts: map[string]string{"domain": "e2b.app", "api_url": "https://api.{domain}", "sandbox_url": ""},
		sandboxes: func(words []string) ([]string, bool) {
			if len(words) > 0 && words[0] == "v2" {
				words = words[1:]
			}
			if len(words) == 0 || words[0] != "sandboxes" {
				return nil, false
			}
			return words[1:], true
		},
		timed:         true,
		remove:        func(_ *service, id string) string { return "/sandboxes/" + id },
		authorization: func(key string) (string, string) { return "X-API-KEY", key },
		find: func(_ context.Context, s *site) (string, error) {
			return s.session.Info().Handle.Session, nil
		},
		traps: e2bTraps,
	}
}
