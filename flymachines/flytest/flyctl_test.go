package flytest

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"
	"github.com/superfly/fly-go/tokens"

	"github.com/execbroker/execbroker/docker/dockertest"
)

// graph returns Fly's own client of the GraphQL API of an emulator.
func (f *emulator) graph() *fly.Client {
	f.t.Helper()
	tr := &http.Transport{}
	f.t.Cleanup(tr.CloseIdleConnections)
	return fly.NewClientFromOptions(fly.ClientOptions{
		Tokens: tokens.Parse(f.Token()), BaseURL: f.url, Name: "flyctl", Version: "0.0.0", Transport: &fly.Transport{UnderlyingTransport: tr},
	})
}

// The commands of flyctl, one after the other, at Fly's rates. Each makes the calls that flyctl
// makes for it, with Fly's own client: the app by GraphQL, and for what changes a Machine its
// lease, the Machine, the change, and the release of the lease.
func TestFlyctl(t *testing.T) {
	f := begin(t, func(c *Config) { c.Rate = 1 })
	ctx, g, c := t.Context(), f.graph(), f.official(f.Token())
	tried := map[string]bool{}
	next := func(commands ...string) { // what follows is what they call
		for _, name := range commands {
			tried[name] = true
		}
	}
	if len(tokens.Parse(f.Token()).GetUserTokens()) != 1 {
		t.Errorf("the token is not one of a person, which flyctl would take as it is")
	}
	app := func(name string) *fly.AppCompact {
		t.Helper()
		a, err := g.GetAppCompact(ctx, name)
		check(t, "GetAppCompact", err)
		return a
	}

	next("auth whoami", "orgs list", "orgs show", "platform regions")
	if u, err := g.GetCurrentUser(ctx); err != nil || u.Email == "" {
		t.Errorf("auth whoami: got %+v, %v", u, err)
	}
	if orgs, err := g.GetOrganizations(ctx); err != nil || len(orgs) != 1 || orgs[0].Slug != personal {
		t.Errorf("orgs list: got %+v, %v", orgs, err)
	}
	if o, err := g.GetOrganizationBySlug(ctx, personal); err != nil || o.ID == "" {
		t.Errorf("orgs show: got %+v, %v", o, err)
	}
	if all, here, err := g.PlatformRegions(ctx); err != nil || len(all) == 0 || here == nil {
		t.Errorf("platform regions: got %+v, %+v, %v", all, here, err)
	}

	next("apps create", "apps list", "apps destroy")
	if a, err := g.CreateApp(ctx, fly.CreateAppInput{Name: "made", OrganizationID: personal}); err != nil || a.Name != "made" || a.Organization.Slug != personal {
		t.Fatalf("apps create: got %+v, %v", a, err)
	}
	if apps, err := g.GetApps(ctx, nil); err != nil || len(apps) != 2 || apps[0].Name != "made" {
		t.Errorf("apps list: got %+v, %v", apps, err)
	}
	check(t, "apps destroy", g.DeleteApp(ctx, "made"))
	if _, err := g.GetAppCompact(ctx, "made"); err == nil || !strings.Contains(err.Error(), "Could not find App") {
		t.Errorf("machine run of no app: got %v, want the words by which flyctl offers to make it", err)
	}

	next("machine run IMAGE")
	if a := app(testApp); a.Name != testApp || a.PlatformVersion != "machines" || a.Organization == nil || a.Organization.Slug != personal {
		t.Fatalf("got %+v", a)
	}
	img, err := g.ResolveImageForApp(ctx, testApp, dockertest.Trixie)
	check(t, "machine run: image", err)
	if !strings.HasPrefix(img.Digest, "sha256:") || img.CompressedSize == "" {
		t.Fatalf("got image %+v", img)
	}
	cfg := &fly.MachineConfig{
		Image: dockertest.Trixie + "@" + img.Digest, Init: fly.MachineInit{Exec: []string{"sleep", "1000"}},
		Guest: &fly.MachineGuest{CPUKind: "shared", CPUs: 1, MemoryMB: 256}, Restart: &fly.MachineRestart{Policy: fly.MachineRestartPolicyNo},
	}
	m, err := c.Launch(ctx, testApp, fly.LaunchMachineInput{Config: cfg, Region: "iad", SkipLaunch: false})
	check(t, "machine run", err)
	if m.ImageRef.Digest != img.Digest || !strings.HasSuffix(m.FullImageRef(), "@"+img.Digest) {
		t.Errorf("machine run: got image %+v, want its digest %s", m.ImageRef, img.Digest)
	}
	wait := func(state string) {
		t.Helper()
		check(t, "wait for "+state, c.Wait(ctx, testApp, m.ID, flaps.WithWaitStates(state)))
	}
	wait("started")

	next("machine list", "machine status", "machine wait")
	ms, err := c.List(ctx, testApp, "")
	check(t, "machine list", err)
	if len(ms) != 1 || ms[0].HostStatus != fly.HostStatusOk {
		t.Errorf("machine list: got %+v", ms)
	}
	if _, err := c.FindLease(ctx, testApp, m.ID); status(err) != 404 {
		t.Errorf("machine leases view: got %v, want 404 without one", err)
	}

	// What changes a Machine.
	next("machine stop", "machine start", "machine suspend", "machine exec")
	ttl := 120
	change := func(command, state string, f func(nonce string) error) {
		t.Helper()
		app(testApp)
		_, err := c.Get(ctx, testApp, m.ID)
		check(t, command, err)
		lease, err := c.AcquireLease(ctx, testApp, m.ID, &ttl)
		check(t, command+": lease", err)
		_, err = c.Get(ctx, testApp, m.ID)
		check(t, command, err)
		check(t, command, f(lease.Data.Nonce))
		check(t, command+": release", c.ReleaseLease(ctx, testApp, m.ID, lease.Data.Nonce))
		wait(state)
	}
	change("machine stop", "stopped", func(n string) error { return c.Stop(ctx, testApp, fly.StopMachineInput{ID: m.ID}, n) })
	change("machine start", "started", func(n string) error { _, err := c.Start(ctx, testApp, m.ID, n); return err })
	change("machine suspend", "suspended", func(n string) error { return c.Suspend(ctx, testApp, m.ID, n) })
	if r, err := c.Start(ctx, testApp, m.ID, ""); err != nil || r.PreviousState != "suspended" {
		t.Errorf("machine start: got %+v, %v", r, err)
	}
	wait("started")
	x, err := c.Exec(ctx, testApp, m.ID, &fly.MachineExecRequest{Cmd: "echo hi"})
	check(t, "machine exec", err)
	if x.StdOut != "hi\n" {
		t.Errorf("machine exec: got %+v", x)
	}

	next("machine cordon", "machine uncordon", "machine restart")
	change("machine cordon", "started", func(n string) error { return c.Cordon(ctx, testApp, m.ID, n) })
	change("machine uncordon", "started", func(n string) error { return c.Uncordon(ctx, testApp, m.ID, n) })
	check(t, "machine restart", c.Restart(ctx, testApp, fly.RestartMachineInput{ID: m.ID, ForceStop: true}, ""))
	wait("started")

	next("machine leases view", "machine leases clear")
	lease, err := c.AcquireLease(ctx, testApp, m.ID, &ttl)
	check(t, "lease", err)
	seen, err := c.FindLease(ctx, testApp, m.ID)
	check(t, "machine leases view", err)
	if seen.Data.Nonce != lease.Data.Nonce {
		t.Errorf("machine leases view: got %+v, want %+v", seen, lease)
	}
	check(t, "machine leases clear", c.ReleaseLease(ctx, testApp, m.ID, seen.Data.Nonce))

	// These send what they have been told as the image, digest and all.
	next("machine update", "machine clone", "machine kill")
	cfg.Image, cfg.Env = m.FullImageRef(), map[string]string{"A": "b"}
	if _, err := c.Update(ctx, testApp, fly.LaunchMachineInput{ID: m.ID, Config: cfg}, ""); err != nil {
		t.Errorf("machine update: %v", err)
	}
	wait("started")
	clone, err := c.Launch(ctx, testApp, fly.LaunchMachineInput{Config: cfg})
	check(t, "machine clone", err)
	m = clone
	wait("started")
	check(t, "machine kill", c.Kill(ctx, testApp, m.ID))
	wait("stopped")

	next("volumes list", "secrets list", "secrets keys list", "ips list")
	if v, err := c.GetVolumes(ctx, testApp); err != nil || len(v) != 0 {
		t.Errorf("volumes list: got %v, %v", v, err)
	}
	if s, err := c.ListAppSecrets(ctx, testApp, nil, false); err != nil || len(s) != 0 {
		t.Errorf("secrets list: got %v, %v", s, err)
	}
	if s, err := c.ListSecretKeys(ctx, testApp, nil); err != nil || len(s) != 0 {
		t.Errorf("secrets keys list: got %v, %v", s, err)
	}
	if ips, err := c.GetIPAssignments(ctx, testApp); err != nil || len(ips.IPs) != 0 {
		t.Errorf("ips list: got %v, %v", ips, err)
	}
	next("machine destroy --force")
	change("machine destroy --force", "destroyed", func(n string) error {
		return c.Destroy(ctx, testApp, fly.RemoveMachineInput{ID: m.ID, Kill: true}, n)
	})
	next("machine destroy")
	left := ms[0]
	change = func(command, state string, do func(nonce string) error) {
		t.Helper()
		lease, err := c.AcquireLease(ctx, testApp, left.ID, &ttl)
		check(t, command+": lease", err)
		check(t, command, do(lease.Data.Nonce))
	}
	check(t, "machine stop", c.Stop(ctx, testApp, fly.StopMachineInput{ID: left.ID}, ""))
	check(t, "machine stop: wait", c.Wait(ctx, testApp, left.ID, flaps.WithWaitStates("stopped")))
	change("machine destroy", "destroyed", func(n string) error { return c.Destroy(ctx, testApp, fly.RemoveMachineInput{ID: left.ID}, n) })
	f.flyctlGuide(tried, refusedCommands(t, f.url, g, c))
}

// refusedCommands returns what the emulator answers to the first call of each command of flyctl
// that it refuses.
func refusedCommands(t *testing.T, url string, g *fly.Client, c *flaps.Client) map[string]string {
	ctx, said := t.Context(), map[string]string{}
	refuse := func(err error, commands ...string) {
		t.Helper()
		text := "nothing"
		if err != nil {
			text = err.Error()
		}
		for _, name := range commands {
			said[name] = text
		}
	}
	_, _, err := g.EnsureRemoteBuilder(ctx, personal, "", "iad")
	refuse(err, "machine run .", "deploy", "launch")
	_, err = c.CreateVolume(ctx, testApp, fly.CreateVolumeRequest{Name: "data", Region: "iad"})
	refuse(err, "volumes create")
	_, err = c.GetVolume(ctx, testApp, "vol_0123")
	refuse(err, "volumes show", "volumes destroy", "volumes extend")
	value := "b"
	_, err = c.UpdateAppSecrets(ctx, testApp, map[string]*string{"A": &value})
	refuse(err, "secrets set", "secrets unset")
	_, err = c.CreateACMECertificate(ctx, testApp, fly.CreateCertificateRequest{Hostname: "boxes.example.com"})
	refuse(err, "certs add")
	fly.SetBaseURL(url) // as flyctl does
	t.Cleanup(func() { fly.SetBaseURL("") })
	_, _, err = g.GetAppLogs(ctx, testApp, "", "", "")
	refuse(err, "logs")
	_, err = g.CreateWireGuardPeer(ctx, personal, "iad", "laptop", "key", "")
	refuse(err, "ssh console", "proxy", "wireguard create")
	_, _, err = g.AllocateEgressIPAddress(ctx, testApp, "0123456789abcd")
	refuse(err, "machine egress-ip allocate")
	_, err = g.RunWithContext(ctx, g.NewRequest(`mutation($input: CreateLimitedAccessTokenInput!) { createLimitedAccessToken(input: $input) { limitedAccessToken { tokenHeader } } }`))
	refuse(err, "tokens create deploy", "tokens create org")
	return said
}

// flyctlGuide tests that the table of flyctl's commands in the guide has those that were tried, as
// what works, and those that are refused, with what they are told.
func (f *emulator) flyctlGuide(tried map[string]bool, said map[string]string) {
	f.t.Helper()
	const guide = "../../docs/guides/fly-emulator.md"
	text, err := os.ReadFile(guide)
	if err != nil {
		f.t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(text), "\n## flyctl\n")
	part, _, _ = strings.Cut(part, "\n## ")
	works, refused := map[string]bool{}, map[string]string{}
	for line := range strings.SplitSeq(part, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		for name := range strings.SplitSeq(strings.TrimSpace(cells[1]), ", ") {
			switch name = strings.Trim(name, "`"); strings.TrimSpace(cells[2]) {
			case "works":
				works[name] = true
			case "refused":
				refused[name] = cells[3]
			default:
				f.t.Errorf("%s: %s: got %q", guide, name, cells[2])
			}
		}
	}
	if !maps.Equal(works, tried) {
		f.t.Errorf("%s: got %v as what works, want %v", guide, slices.Sorted(maps.Keys(works)), slices.Sorted(maps.Keys(tried)))
	}
	if got, want := slices.Sorted(maps.Keys(refused)), slices.Sorted(maps.Keys(said)); !slices.Equal(got, want) {
		f.t.Errorf("%s: got %v as what is refused, want %v", guide, got, want)
	}
	quoted := regexp.MustCompile("`((flytest: |404 Not)[^`]+)`")
	for name, got := range said {
		if m := quoted.FindStringSubmatch(refused[name]); m == nil || !strings.Contains(got, m[1]) {
			f.t.Errorf("%s: %s is told %q, and its row says %q", guide, name, got, refused[name])
		}
	}
}

// What the emulator does not have is refused by its name, and no document keeps it busy.
func TestGraphQL(t *testing.T) {
	for doc, want := range map[string]string{
		`query { viewer { ... on User { id } } }`:          `"email":"flytest@example.com"`,
		`query($n: String!) { a: app(name: $n) { id } }`:   `"a":{`,
		`{ app(name: "none") { id } }`:                     `Could not find App \"none\"`,
		`query { addOns { nodes { id } } }`:                `has no field \"addOns\"`,
		`query { ...f }`:                                   "without fragments",
		`query`:                                            "want one query",
		"query { " + strings.Repeat("viewer ", 1000) + "}": "want one query",
		"query { viewer " + strings.Repeat("{ a ", 100000): "want one query",
	} {
		f := &Server{cfg: Config{Regions: regions}, apps: map[string]*app{testApp: newApp(App{Name: testApp})}}
		c := &call{s: f, body: []byte(`{"query":` + encoded(doc) + `,"variables":{"n":"` + testApp + `"}}`)}
		a, err := graphQL(t.Context(), c)
		if got := encoded(a.body); err != nil || !strings.Contains(got, want) {
			t.Errorf("%.60s: got %.300s, %v, want %s", doc, got, err, want)
		}
	}
}

func encoded(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
