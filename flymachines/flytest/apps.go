package flytest

import (
	"cmp"
	"context"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
)

// appJSON is an app as clients see it.
type appJSON struct {
	ID           string  `json:"id"`
	Name         string  `json:"name"`
	NumericID    int32   `json:"internal_numeric_id"`
	Network      string  `json:"network"`
	Status       string  `json:"status"`
	MachineCount int     `json:"machine_count"`
	VolumeCount  int     `json:"volume_count"`
	Organization orgJSON `json:"organization"`
}

type orgJSON struct {
	Name      string `json:"name"`
	Slug      string `json:"slug"`
	NumericID int32  `json:"internal_numeric_id"`
}

func numeric(name string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // it never fails
	return int32(h.Sum32() & 0x7fffffff)
}

// view is what clients see. The caller holds Server.mu.
func (a *app) view() appJSON {
	n := 0
	for _, m := range a.machines {
		if m.state != stateDestroyed {
			n++
		}
	}
	network := cmp.Or(a.Network, "default")
	status := "pending"
	if n > 0 {
		status = "deployed"
	}
	return appJSON{
		ID: a.Name, Name: a.Name, NumericID: numeric(a.Name), Network: network, Status: status, MachineCount: n,
		Organization: orgJSON{Name: a.Org, Slug: a.Org, NumericID: numeric("org " + a.Org)},
	}
}

const maxApps = 1000

// appInput is the body of createApp.
type appInput struct {
	Name             string `json:"name"`
	AppName          string `json:"app_name"` // so say the docs
	OrgSlug          string `json:"org_slug"`
	Network          string `json:"network"`
	EnableSubdomains bool   `json:"enable_subdomains"`
	AppRoleID        string `json:"app_role_id"`
}

func createApp(_ context.Context, c *call, in *appInput) (answer, error) {
	in.Name = cmp.Or(in.Name, in.AppName)
	if !appName.MatchString(in.Name) {
		return answer{}, fail(http.StatusUnprocessableEntity, "Validation failed: Name may only contain numbers, lowercase letters and dashes")
	}
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.tok.app != "":
		return answer{}, errUnauthorized()
	case s.apps[in.Name] != nil:
		return answer{}, errAppTaken()
	case len(s.apps) >= maxApps:
		return answer{}, ours("there are %d apps already", maxApps)
	}
	a := newApp(App{Name: in.Name, Org: in.OrgSlug, Network: in.Network})
	s.apps[in.Name] = a
	return answer{http.StatusCreated, a.view()}, nil
}

func getApp(c *call) (answer, error) {
	return ok(c.app.view())
}

func listApps(c *call) (answer, error) {
	org := c.r.URL.Query().Get("org_slug")
	if org == "" {
		return answer{}, fail(http.StatusBadRequest, "org_slug is required")
	}
	found := []appJSON{}
	for _, a := range c.s.apps {
		if a.Org == org && (c.tok.app == "" || c.tok.app == a.Name) {
			found = append(found, a.view())
		}
	}
	slices.SortFunc(found, func(a, b appJSON) int { return strings.Compare(a.Name, b.Name) })
	return ok(map[string]any{"total_apps": len(found), "apps": found})
}

// deleteApp removes an app with its Machines.
func deleteApp(c *call) (answer, error) {
	for _, m := range c.app.machines {
		if m.state == stateDestroyed || m.state == stateDestroying {
			continue
		}
		if err := m.order(command{kind: doDestroy, signal: 9}, stateDestroying, "destroy"); err != nil {
			return answer{}, err
		}
		m.interrupt()
	}
	delete(c.s.apps, c.app.Name)
	return answer{status: http.StatusAccepted}, nil
}
