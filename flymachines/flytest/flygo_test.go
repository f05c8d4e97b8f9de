package flytest

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"
	"github.com/superfly/fly-go/tokens"

	"github.com/execbroker/execbroker/docker/dockertest"
)

// official returns Fly's own client of an emulator.
func (f *emulator) official(token string) *flaps.Client {
	f.t.Helper()
	f.t.Setenv("FLY_FLAPS_BASE_URL", f.url)
	tr := &http.Transport{}
	f.t.Cleanup(tr.CloseIdleConnections)
	c, err := flaps.NewWithOptions(f.t.Context(), flaps.NewClientOpts{Tokens: tokens.Parse(token), Transport: tr})
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// check fails the test with the step that an error belongs to.
func check(t *testing.T, step string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", step, err)
	}
}

// status returns the status of an error of Fly's client.
func status(err error) int {
	var fe *flaps.FlapsError
	if errors.As(err, &fe) {
		return fe.ResponseStatusCode
	}
	return 0
}

// Fly's own client can do everything that the emulator has.
func TestFlysClient(t *testing.T) {
	f := begin(t)
	ctx := t.Context()
	c := f.official(f.Token())

	app, err := c.CreateApp(ctx, flaps.CreateAppRequest{Name: "made", Org: "me", Network: "own"})
	check(t, "CreateApp", err)
	if app.Name != "made" || app.Organization.Slug != "me" || app.Network != "own" {
		t.Errorf("got app %+v", app)
	}
	check(t, "WaitForApp", c.WaitForApp(ctx, "made"))
	if _, err := c.CreateApp(ctx, flaps.CreateAppRequest{Name: "made", Org: "me"}); status(err) != 422 {
		t.Errorf("second CreateApp: got %v, want 422", err)
	}
	apps, err := c.ListApps(ctx, flaps.ListAppsRequest{OrgSlug: "me"})
	check(t, "ListApps", err)
	if len(apps) != 1 {
		t.Errorf("got apps %+v", apps)
	}
	ip, err := c.AssignIP(ctx, "made", flaps.AssignIPRequest{Type: "shared_v4"})
	check(t, "AssignIP", err)
	ips, err := c.GetIPAssignments(ctx, "made")
	check(t, "GetIPAssignments", err)
	if len(ips.IPs) != 1 || !ips.IPs[0].Shared {
		t.Errorf("got addresses %+v", ips)
	}
	check(t, "DeleteIPAssignment", c.DeleteIPAssignment(ctx, "made", ip.IP))
	regions, err := c.GetRegions(ctx)
	check(t, "GetRegions", err)
	places, err := c.GetPlacements(ctx, &flaps.GetPlacementsRequest{Org: "me", Region: "iad"})
	check(t, "GetPlacements", err)
	if len(regions.Regions) == 0 || len(places) != 1 || places[0].Region != "iad" || places[0].Count == 0 {
		t.Errorf("got regions %+v, placements %+v", regions, places)
	}

	content := base64.StdEncoding.EncodeToString([]byte("hi\n"))
	cfg := &fly.MachineConfig{
		Image: dockertest.Trixie, Env: map[string]string{"A": "b"},
		Init:  fly.MachineInit{Exec: []string{"sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"}},
		Guest: &fly.MachineGuest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}, Restart: &fly.MachineRestart{Policy: fly.MachineRestartPolicyNo},
		Files: []*fly.File{{GuestPath: "/etc/hi", RawValue: &content}}, Metadata: map[string]string{"owner": "me"},
		DNS: &fly.DNSConfig{SkipRegistration: true},
	}
	m, err := c.Launch(ctx, "made", fly.LaunchMachineInput{Name: "one", Region: "lhr", Config: cfg, SkipSecrets: true})
	check(t, "Launch", err)
	if m.State != "created" || m.Region != "lhr" || m.Config.Files[0].GuestPath != "/etc/hi" || !m.Config.DNS.SkipRegistration {
		t.Errorf("got %+v with %+v", m, m.Config)
	}
	waitFor := func(states ...string) {
		t.Helper()
		check(t, "Wait for "+strings.Join(states, ","), c.Wait(ctx, "made", m.ID, flaps.WithWaitStates(states...), flaps.WithWaitTimeout(time.Minute)))
	}
	waitFor("started")
	m, err = c.Get(ctx, "made", m.ID)
	check(t, "Get", err)
	if m.HostStatus != fly.HostStatusOk || m.ImageRef.Repository == "" || m.PrivateIP == "" {
		t.Errorf("got %+v", m)
	}
	if _, err := m.MostRecentStartTimeAfterLaunch(); err != nil {
		t.Error(err)
	}
	for name, query := range map[string]string{"all": "", "metadata": "metadata.owner=me", "state": "state=started,stopped"} {
		list, err := c.List(ctx, "made", query)
		check(t, "List "+name, err)
		if len(list) != 1 || list[0].ID != m.ID {
			t.Errorf("List %s: got %d", name, len(list))
		}
	}
	active, err := c.ListActive(ctx, "made")
	check(t, "ListActive", err)
	many, err := c.GetMany(ctx, "made", []string{m.ID})
	check(t, "GetMany", err)
	if len(active) != 1 || len(many) != 1 {
		t.Errorf("got %d active, %d of many", len(active), len(many))
	}

	out, err := c.Exec(ctx, "made", m.ID, &fly.MachineExecRequest{Cmd: `sh -c 'cat /etc/hi; echo "$A" >&2; exit 4'`, Timeout: 30})
	check(t, "Exec", err)
	if out.StdOut != "hi\n" || out.StdErr != "b\n" || out.ExitCode != 4 {
		t.Errorf("got %+v", out)
	}
	ps, err := c.GetProcesses(ctx, "made", m.ID)
	check(t, "GetProcesses", err)
	if !slices.ContainsFunc(ps, func(p fly.ProcessStat) bool { return strings.Contains(p.Command, "trap") && p.Rss > 0 }) {
		t.Errorf("got processes %+v", ps)
	}

	check(t, "SetMetadata", c.SetMetadata(ctx, "made", m.ID, "k", "v"))
	md, err := c.GetMetadata(ctx, "made", m.ID)
	check(t, "GetMetadata", err)
	check(t, "DeleteMetadata", c.DeleteMetadata(ctx, "made", m.ID, "owner"))
	after, err := c.GetMetadata(ctx, "made", m.ID)
	check(t, "GetMetadata", err)
	if md["k"] != "v" || md["owner"] != "me" || len(after) != 1 {
		t.Errorf("got metadata %v, then %v", md, after)
	}

	ttl := 60
	lease, err := c.AcquireLease(ctx, "made", m.ID, &ttl)
	check(t, "AcquireLease", err)
	nonce := lease.Data.Nonce
	if err := c.Suspend(ctx, "made", m.ID, ""); status(err) != 409 || !strings.Contains(err.Error(), "lease currently held") {
		t.Errorf("without the lease: got %v", err)
	}
	_, err = c.RefreshLease(ctx, "made", m.ID, &ttl, nonce)
	check(t, "RefreshLease", err)
	found, err := c.FindLease(ctx, "made", m.ID)
	check(t, "FindLease", err)
	if found.Data.Nonce != nonce || found.Data.ExpiresAt < time.Now().Unix() {
		t.Errorf("got lease %+v", found.Data)
	}
	check(t, "Suspend", c.Suspend(ctx, "made", m.ID, nonce))
	waitFor("suspended")
	started, err := c.Start(ctx, "made", m.ID, nonce)
	check(t, "Start", err)
	if started.PreviousState != "suspended" {
		t.Errorf("got %+v", started)
	}
	waitFor("started")
	check(t, "Cordon", c.Cordon(ctx, "made", m.ID, nonce))
	check(t, "Uncordon", c.Uncordon(ctx, "made", m.ID, nonce))
	check(t, "Restart", c.Restart(ctx, "made", fly.RestartMachineInput{ID: m.ID, Timeout: 5 * time.Second}, nonce))
	waitFor("started")
	cfg.Env["A"] = "c"
	updated, err := c.Update(ctx, "made", fly.LaunchMachineInput{ID: m.ID, Config: cfg}, nonce)
	check(t, "Update", err)
	if updated.InstanceID == m.InstanceID || updated.Config.Env["A"] != "c" {
		t.Errorf("got %+v", updated)
	}
	check(t, "Wait for version", c.Wait(ctx, "made", m.ID, flaps.WithWaitVersion(updated.InstanceID), flaps.WithWaitTimeout(time.Minute)))
	check(t, "Stop", c.Stop(ctx, "made", fly.StopMachineInput{ID: m.ID, Signal: "SIGTERM", Timeout: fly.Duration{Duration: 20 * time.Second}}, nonce))
	waitFor("stopped")
	m, err = c.Get(ctx, "made", m.ID)
	check(t, "Get", err)
	if e := m.GetLatestEventOfType("exit"); e == nil || e.Request == nil || e.Request.ExitEvent == nil || !e.Request.ExitEvent.RequestedStop || e.Request.ExitEvent.ExitedAt.IsZero() {
		t.Errorf("got exit event %+v", e)
	}
	check(t, "ReleaseLease", c.ReleaseLease(ctx, "made", m.ID, nonce))
	_, err = c.Start(ctx, "made", m.ID, "")
	check(t, "Start", err)
	waitFor("started")
	check(t, "Kill", c.Kill(ctx, "made", m.ID))
	waitFor("stopped")
	check(t, "Destroy", c.Destroy(ctx, "made", fly.RemoveMachineInput{ID: m.ID, Kill: true}, ""))
	waitFor("destroyed")
	check(t, "DeleteApp", c.DeleteApp(ctx, "made"))
	if _, err := c.GetApp(ctx, "made"); !errors.Is(err, flaps.ErrFlapsNotFound) {
		t.Errorf("GetApp of none: got %v", err)
	}
}

// A token for one app is refused in others, and every form of a token that clients send is
// understood.
func TestTokens(t *testing.T) {
	f := begin(t, func(c *Config) {
		c.Apps = append(c.Apps, App{Name: "other"})
		c.Tokens = []string{"plainoauth", "fm2_a,fm2_b"}
	})
	for token, want := range map[string]int{"plainoauth": 0, "fm2_a,fm2_b": 0, "FlyV1 fm2_a,fm2_b": 0, "fm2_c": 401, "": 401} {
		if _, err := f.official(token).GetApp(t.Context(), testApp); status(err) != want || want == 0 && err != nil {
			t.Errorf("token %q: got %v, want %d", token, err, want)
		}
	}
	var made struct{ Token string }
	f.ask(200, "POST", "/deploy_token", map[string]string{"expiry": "48h"}, &made)
	c := f.official(made.Token)
	if _, err := c.GetApp(t.Context(), testApp); err != nil {
		t.Error(err)
	}
	if _, err := c.GetApp(t.Context(), "other"); status(err) != 403 {
		t.Errorf("another app: got %v, want 403", err)
	}
	if _, err := c.CreateApp(context.WithoutCancel(t.Context()), flaps.CreateAppRequest{Name: "third"}); status(err) != 403 {
		t.Errorf("a new app: got %v, want 403", err)
	}
}
