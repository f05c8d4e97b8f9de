package e2b

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/execbroker/execbroker/executor"
	fspb "github.com/execbroker/execbroker/internal/envd/filesystempb"
	pb "github.com/execbroker/execbroker/internal/envd/processpb"
	"github.com/execbroker/execbroker/internal/fake"
)

// daemon is envd of one sandbox, over a connection.
type daemon struct {
	world
	box   sandboxAnswer
	url   string
	http  *http.Client
	files fspb.FilesystemClient
	procs pb.ProcessClient
	over  chan string // gets the path of each request that the server is done with, as far as there is room
}

// addressed adds what every request to a sandbox has.
type addressed struct {
	http.RoundTripper
	id, token string
}

func (a addressed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("E2b-Sandbox-Id", a.id)
	r.Header.Set("E2b-Sandbox-Port", strconv.Itoa(envdPort))
	if a.token != "" && r.Header.Get("X-Access-Token") == "" {
		r.Header.Set("X-Access-Token", a.token)
	}
	return a.RoundTripper.RoundTrip(r)
}

func newDaemon(t *testing.T, o fake.Options) daemon { return daemonOf(newWorld(t, o, Config{})) }

// daemonOf makes a sandbox in a world.
func daemonOf(w world) daemon {
	t := w.T
	t.Helper()
	over := make(chan string, 1000)
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		defer func() {
			select {
			case over <- r.URL.Path:
			default:
			}
		}()
		w.s.ServeHTTP(rw, r)
	}))
	t.Cleanup(srv.Close)
	d := daemon{world: w, box: w.create(""), url: srv.URL, over: over}
	d.http = d.client(d.box.EnvdAccessToken)
	d.files = fspb.NewFilesystemClient(d.http, d.url, connect.WithProtoJSON())
	d.procs = pb.NewProcessClient(d.http, d.url)
	return d
}

func (d daemon) client(token string) *http.Client {
	tr := http.DefaultTransport.(*http.Transport).Clone()
	d.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: addressed{tr, d.box.SandboxID, token}}
}

// ask sends a request for a transfer.
func (d daemon) ask(status int, c *http.Client, method, query, typ string, body []byte, headers ...string) []byte {
	d.Helper()
	r, err := http.NewRequestWithContext(d.Context(), method, d.url+"/files?"+query, bytes.NewReader(body))
	if err != nil {
		d.Fatal(err)
	}
	r.Header.Set("Content-Type", typ)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := c.Do(r)
	if err != nil {
		d.Fatal(err)
	}
	defer res.Body.Close()
	var got bytes.Buffer
	if _, err := got.ReadFrom(res.Body); err != nil {
		d.Fatal(err)
	}
	if res.StatusCode != status {
		d.Fatalf("%s %s: got %d %s, want %d", method, query, res.StatusCode, &got, status)
	}
	return got.Bytes()
}

const octets = "application/octet-stream"

func wantCode(t *testing.T, what string, err error, want connect.Code) {
	t.Helper()
	if got := connect.CodeOf(err); err == nil || got != want {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

func TestTransfer(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	every := make([]byte, 1<<16)
	for i := range every {
		every[i] = byte(i)
	}
	d.ask(200, d.http, "POST", "path=dir/a.bin", octets, every)
	if got := d.ask(200, d.http, "GET", "path=/workspace/dir/a.bin", "", nil); !bytes.Equal(got, every) {
		t.Errorf("got %d other bytes", len(got))
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	fmt.Fprint(w, "packed")
	w.Close()
	d.ask(200, d.http, "POST", "path=z", octets, z.Bytes(), "Content-Encoding", "gzip")
	if got := d.ask(200, d.http, "GET", "path=z", "", nil); string(got) != "packed" {
		t.Errorf("got %q", got)
	}
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	for _, name := range []string{"/workspace/dir/b", "c \"ü\""} {
		p, err := m.CreateFormFile("file", name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(p, name)
	}
	m.Close()
	if got, want := string(d.ask(200, d.http, "POST", "", m.FormDataContentType(), form.Bytes())),
		`[{"name":"b","path":"/workspace/dir/b","type":"file"},{"name":"c \"ü\"","path":"/home/user/c \"ü\"","type":"file"}]`+"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := d.ask(200, d.http, "GET", "path="+url.QueryEscape("c \"ü\""), "", nil); string(got) != "c \"ü\"" {
		t.Errorf("got %q", got)
	}
	for name, c := range map[string]struct {
		status             int
		method, query, typ string
		body               string
		headers            []string
	}{
		"missing":       {404, "GET", "path=nothing", "", "", nil},
		"directory":     {400, "GET", "path=dir", "", "", nil},
		"no-path":       {400, "GET", "", "", "", nil},
		"climbs":        {400, "GET", "path=../../etc/passwd", "", "", nil},
		"climbs-up":     {400, "POST", "path=../x", octets, "x", nil},
		"nul":           {400, "GET", "path=a%00b", "", "", nil},
		"home":          {404, "GET", "path=~/x", "", "", nil},
		"other-home":    {400, "GET", "path=~root/x", "", "", nil},
		"user":          {401, "GET", "path=z&username=root", "", "", nil},
		"type":          {415, "POST", "path=x", "text/plain", "x", nil},
		"no-boundary":   {400, "POST", "path=x", "multipart/form-data", "x", nil},
		"not-a-form":    {400, "POST", "path=x", "multipart/form-data; boundary=b", "x", nil},
		"not-gzip":      {400, "POST", "path=x", octets, "x", []string{"Content-Encoding", "gzip"}},
		"encoding":      {400, "POST", "path=x", octets, "x", []string{"Content-Encoding", "br"}},
		"odd-metadata":  {400, "POST", "path=x", octets, "x", []string{"X-Metadata-A", "\xe4"}},
		"no-name":       {400, "POST", "path=x", octets, "x", []string{"X-Metadata-", "a"}},
		"much-metadata": {400, "POST", "path=x", octets, "x", []string{"X-Metadata-A", strings.Repeat("x", 4096)}},
		"long-name":     {400, "POST", "path=" + strings.Repeat("x", 300), octets, "x", nil},
		"basic-of-root": {401, "GET", "path=z", "", "", []string{"Authorization", "Basic cm9vdDo="}},
	} {
		t.Run(name, func(t *testing.T) {
			d.ask(c.status, d.http, c.method, c.query, c.typ, []byte(c.body), c.headers...)
		})
	}
	d.ask(200, d.http, "GET", "path=z&username=user", "", nil)
}

// signed returns the query of an address that the SDKs give away.
func signed(token, path, op, exp string) string {
	raw := path + ":" + op + "::" + token
	q := url.Values{"path": {path}}
	if exp != "" {
		raw += ":" + exp
		q.Set("signature_expiration", exp)
	}
	sum := hash(raw)
	q.Set("signature", "v1_"+strings.TrimRight(base64.StdEncoding.EncodeToString(sum[:]), "="))
	return q.Encode()
}

// Who has no token gets in with a signature, for what was signed and as long as it says.
func TestSignatures(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	d.ask(200, d.http, "POST", "path=a", octets, []byte("signed"))
	stranger := d.client("")
	sign := func(path, op, exp string) string { return signed(d.box.EnvdAccessToken, path, op, exp) }
	later, earlier := fmt.Sprint(time.Now().Unix()+100), fmt.Sprint(time.Now().Unix()-100)
	for _, q := range []string{sign("a", "read", ""), sign("a", "read", later)} {
		if got := d.ask(200, stranger, "GET", q, "", nil); string(got) != "signed" {
			t.Errorf("got %q", got)
		}
	}
	d.ask(200, stranger, "POST", sign("b", "write", later), octets, []byte("x"))
	// All sandboxes have one address, and the URL alone says which.
	d.create("")
	plain := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	d.ask(200, plain, "GET", sign("a", "read", later), "", nil)
	d.ask(401, plain, "GET", sign("a", "write", later), "", nil)
	d.ask(401, plain, "POST", sign("a", "read", later), octets, nil)
	for name, q := range map[string]string{
		"none": "path=a", "other-path": strings.Replace(sign("a", "read", ""), "path=a", "path=b", 1), "other-operation": sign("a", "write", ""),
		"expired": sign("a", "read", earlier), "extended": strings.Replace(sign("a", "read", earlier), earlier, later, 1),
		"without-its-end": strings.Replace(sign("a", "read", later), "signature_expiration", "x", 1), "odd-end": sign("a", "read", "soon"),
	} {
		if d.ask(401, stranger, "GET", q, "", nil); t.Failed() {
			t.Fatalf("%s: got in", name)
		}
	}
	for _, c := range []*http.Client{stranger, plain} {
		if got := d.ask(401, c, "GET", sign("a", "read", earlier), "", nil); !strings.Contains(string(got), "signature is already expired") {
			t.Errorf("got %s", got)
		}
	}
	d.ask(401, d.client("wrong"), "GET", "path=a", "", nil)
	d.ask(401, d.client("wrong"), "POST", "path=a", octets, nil)
	_, err := fspb.NewFilesystemClient(d.client("wrong"), d.url).Stat(t.Context(), connect.NewRequest(&fspb.StatRequest{Path: "a"}))
	wantCode(t, "wrong token", err, connect.CodeUnauthenticated)
}

// A web page moves files by signed addresses if it has the origin of the server, for example behind
// one proxy. A page of another origin can be a link to a file, and nothing else: it cannot write,
// and its scripts are not given what they ask for.
func TestWebPages(t *testing.T) {
	w := newWorld(t, fake.Options{}, Config{Hosts: []string{"app.test"}})
	box := w.create("")
	write, read := "/files?"+signed(box.EnvdAccessToken, "a.txt", "write", ""), "/files?"+signed(box.EnvdAccessToken, "a.txt", "read", "")
	for _, c := range []struct {
		name, method, target string
		origin, site         string
		status               int
	}{
		{"own-page-uploads", "POST", write, "https://app.test", "same-origin", 200},
		{"old-browser", "POST", write, "https://app.test", "", 200},
		{"own-page-reads", "GET", read, "", "same-origin", 200},
		{"other-page-uploads", "POST", write, "https://shop.test", "cross-site", 403},
		{"sibling-uploads", "POST", write, "https://www.app.test", "same-site", 403},
		{"old-browser-of-another", "POST", write, "https://shop.test", "", 403},
		{"other-page-asks", "OPTIONS", write, "https://shop.test", "cross-site", 401},
		{"other-page-reads", "GET", read, "https://shop.test", "cross-site", 200},
		{"link", "GET", read, "", "cross-site", 200},
	} {
		headers := []string{"Host", "app.test", "X-API-KEY", "", "Content-Type", octets}
		for k, v := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site} {
			if v != "" {
				headers = append(headers, k, v)
			}
		}
		rec := w.do(c.method, c.target, c.name, headers...)
		if rec.Code != c.status || rec.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: got %d %v %s, want %d", c.name, rec.Code, rec.Header(), rec.Body, c.status)
		}
	}
	if rec := w.do("GET", read, "", "Host", "app.test"); rec.Body.String() != "old-browser" {
		t.Errorf("got %s", rec.Body)
	}
}

func TestFilesystem(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	ctx := t.Context()
	d.ask(200, d.http, "POST", "path=dir/sub/a", octets, []byte("abc"))
	d.ask(200, d.http, "POST", "path=dir/b", octets, nil)
	s, err := d.files.Stat(ctx, connect.NewRequest(&fspb.StatRequest{Path: "dir/sub/a"}))
	if err != nil {
		t.Fatal(err)
	}
	if e := s.Msg.Entry; e.Path != "/home/user/dir/sub/a" || e.Name != "a" || e.Size != 3 || e.Type != fspb.FileType_FILE_TYPE_FILE || e.Permissions != "-rw-r--r--" || e.Mode != 0o644 {
		t.Errorf("got %v", e)
	}
	names := func(depth uint32) (all []string) {
		l, err := d.files.ListDir(ctx, connect.NewRequest(&fspb.ListDirRequest{Path: "/workspace", Depth: depth}))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range l.Msg.Entries {
			all = append(all, strings.TrimPrefix(e.Path, "/workspace/"))
		}
		return all
	}
	for depth, want := range map[uint32][]string{0: {"dir"}, 1: {"dir"}, 2: {"dir", "dir/b", "dir/sub"}, 1 << 31: {"dir", "dir/b", "dir/sub", "dir/sub/a"}} {
		if got := names(depth); !slices.Equal(got, want) {
			t.Errorf("depth %d: got %v, want %v", depth, got, want)
		}
	}
	if _, err := d.files.MakeDir(ctx, connect.NewRequest(&fspb.MakeDirRequest{Path: "x/y"})); err != nil {
		t.Error(err)
	}
	m, err := d.files.Move(ctx, connect.NewRequest(&fspb.MoveRequest{Source: "dir/b", Destination: "x/y/b"}))
	if err != nil || m.Msg.Entry.Path != "/home/user/x/y/b" {
		t.Errorf("got %v, %v", m, err)
	}
	for range 2 { // what is missing is not an error
		if _, err := d.files.Remove(ctx, connect.NewRequest(&fspb.RemoveRequest{Path: "x"})); err != nil {
			t.Error(err)
		}
	}
	_, err = d.files.MakeDir(ctx, connect.NewRequest(&fspb.MakeDirRequest{Path: "dir"}))
	wantCode(t, "existing directory", err, connect.CodeAlreadyExists)
	for name, want := range map[string]connect.Code{"nothing": connect.CodeNotFound, "../x": connect.CodeInvalidArgument, "": connect.CodeInvalidArgument, "~root": connect.CodeInvalidArgument} {
		_, err = d.files.Stat(ctx, connect.NewRequest(&fspb.StatRequest{Path: name}))
		wantCode(t, name, err, want)
	}
	_, err = d.files.ListDir(ctx, connect.NewRequest(&fspb.ListDirRequest{Path: "dir/sub/a"}))
	wantCode(t, "list of a file", err, connect.CodeInvalidArgument)
	_, err = d.files.Move(ctx, connect.NewRequest(&fspb.MoveRequest{Source: "dir", Destination: "../.."}))
	wantCode(t, "move out", err, connect.CodeInvalidArgument)
	r := connect.NewRequest(&fspb.StatRequest{Path: "dir"})
	r.Header().Set("Authorization", "Basic cm9vdDo=")
	_, err = d.files.Stat(ctx, r)
	wantCode(t, "as root", err, connect.CodeUnauthenticated)
}

func TestWatch(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	ctx := t.Context()
	c, err := d.files.CreateWatcher(ctx, connect.NewRequest(&fspb.CreateWatcherRequest{Path: "/workspace", Recursive: true}))
	if err != nil {
		t.Fatal(err)
	}
	events := func() (all []string) {
		t.Helper()
		e, err := d.files.GetWatcherEvents(ctx, connect.NewRequest(&fspb.GetWatcherEventsRequest{WatcherId: c.Msg.WatcherId}))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range e.Msg.Events {
			all = append(all, e.Name+" "+strings.TrimPrefix(e.Type.String(), "EVENT_TYPE_"))
		}
		return all
	}
	w, err := d.files.WatchDir(ctx, connect.NewRequest(&fspb.WatchDirRequest{Path: "/workspace"}))
	if err != nil || !w.Receive() || w.Msg().GetStart() == nil {
		t.Fatalf("got %v, %v", err, w.Msg())
	}
	d.ask(200, d.http, "POST", "path=dir/a", octets, []byte("1"))
	if got, want := events(), []string{"dir CREATE", "dir/a CREATE", "dir/a WRITE"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	d.ask(200, d.http, "POST", "path=dir/a", octets, []byte("22"))
	if got, want := events(), []string{"dir/a WRITE"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if !w.Receive() || w.Msg().GetFilesystem().GetName() != "dir" { // it is not recursive
		t.Errorf("got %v, %v", w.Msg(), w.Err())
	}
	w.Close()
	with, err := d.files.CreateWatcher(ctx, connect.NewRequest(&fspb.CreateWatcherRequest{Path: "/workspace/dir", IncludeEntry: true, AllowNetworkMounts: true}))
	if err != nil {
		t.Fatal(err)
	}
	d.ask(200, d.http, "POST", "path=dir/a", octets, []byte("333"), "X-Metadata-Author", "a")
	e, err := d.files.GetWatcherEvents(ctx, connect.NewRequest(&fspb.GetWatcherEventsRequest{WatcherId: with.Msg.WatcherId}))
	if err != nil || len(e.Msg.Events) != 1 {
		t.Fatalf("got %v, %v", e, err)
	}
	if a := e.Msg.Events[0].Entry; a.GetPath() != "/workspace/dir/a" || a.GetSize() != 3 || a.GetMetadata()["author"] != "a" {
		t.Errorf("got %v", a)
	}
	events()
	d.files.Remove(ctx, connect.NewRequest(&fspb.RemoveRequest{Path: "dir"}))
	_, err = d.files.GetWatcherEvents(ctx, connect.NewRequest(&fspb.GetWatcherEventsRequest{WatcherId: with.Msg.WatcherId}))
	wantCode(t, "removed directory", err, connect.CodeNotFound)
	if got, want := events(), []string{"dir REMOVE", "dir/a REMOVE"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	d.files.RemoveWatcher(ctx, connect.NewRequest(&fspb.RemoveWatcherRequest{WatcherId: c.Msg.WatcherId}))
	_, err = d.files.GetWatcherEvents(ctx, connect.NewRequest(&fspb.GetWatcherEventsRequest{WatcherId: c.Msg.WatcherId}))
	wantCode(t, "removed watcher", err, connect.CodeNotFound)
	_, err = d.files.CreateWatcher(ctx, connect.NewRequest(&fspb.CreateWatcherRequest{Path: "nothing"}))
	wantCode(t, "missing directory", err, connect.CodeNotFound)
}

// events is a stream of what a process does.
type events interface {
	Receive() bool
	Err() error
	Close() error
}

func event(s events) *pb.ProcessEvent {
	switch s := s.(type) {
	case *connect.ServerStreamForClient[pb.StartResponse]:
		return s.Msg().Event
	case *connect.ServerStreamForClient[pb.ConnectResponse]:
		return s.Msg().Event
	}
	return nil
}

// follow reads a stream to its end, or until the output has text.
func follow(s events, text string) (out string, end *pb.ProcessEvent_EndEvent) {
	for s.Receive() {
		e := event(s)
		out += string(e.GetData().GetStdout()) + string(e.GetData().GetStderr()) + string(e.GetData().GetPty())
		if text != "" && strings.Contains(out, text) {
			return out, nil
		}
		if e.GetEnd() != nil {
			end = e.GetEnd()
		}
	}
	return out, end
}

func (d daemon) start(ctx context.Context, script string, change func(*pb.StartRequest)) (pid uint32, s *connect.ServerStreamForClient[pb.StartResponse]) {
	d.Helper()
	no := false
	m := &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "script", Args: []string{script}}, Stdin: &no}
	if change != nil {
		change(m)
	}
	s, err := d.procs.Start(ctx, connect.NewRequest(m))
	if err != nil {
		d.Fatal(err)
	}
	if !s.Receive() || s.Msg().Event.GetStart() == nil {
		d.Fatalf("got %v, %v", s.Msg(), s.Err())
	}
	return s.Msg().Event.GetStart().Pid, s
}

func byPID(pid uint32) *pb.ProcessSelector {
	return &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: pid}}
}

const noSudo = "sudo: sandboxes of this server have no root; put what needs it into the image of the template\n"

func TestProcesses(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	for name, c := range map[string]struct {
		script string
		change func(*pb.StartRequest)
		out    string
		end    string
	}{
		"ok":     {script: "print(1)\neprint(2)", out: "1\n2\n", end: `exited:true status:"exit status 0"`},
		"exit":   {script: "exit(3)", end: `exit_code:3 exited:true status:"exit status 3" error:"exit status 3"`},
		"env":    {script: `print(env("A"))`, change: func(m *pb.StartRequest) { m.Process.Envs = map[string]string{"A": "b"} }, out: "b\n", end: `exited:true status:"exit status 0"`},
		"dir":    {script: `print(cwd())`, change: func(m *pb.StartRequest) { dir := "/tmp"; m.Process.Cwd = &dir }, out: "/tmp\n", end: `exited:true status:"exit status 0"`},
		"no-cmd": {script: ``, change: func(m *pb.StartRequest) { m.Process.Cmd = "nothing" }, out: "nothing: not found\n", end: `exit_code:127 exited:true status:"exit status 127" error:"exit status 127"`},
		"stdin":  {script: `print(readline())`, out: "null\n", end: `exited:true status:"exit status 0"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := d.start(t.Context(), c.script, c.change)
			defer s.Close()
			out, end := follow(s, "")
			if got := strings.ReplaceAll(end.String(), "  ", " "); out != c.out || got != c.end || s.Err() != nil {
				t.Errorf("got %q, %s, %v\nwant %q, %s", out, got, s.Err(), c.out, c.end)
			}
		})
	}
	for name, c := range map[string]struct {
		cmd  []string
		want string
	}{
		"sudo":        {[]string{"sudo", "apt-get", "install"}, "sudo: not found\n" + noSudo},
		"shell":       {[]string{"nothing", "-c", "cd /tmp && sudo make"}, "nothing: not found\n" + noSudo},
		"path":        {[]string{"nothing", "-c", "/usr/bin/sudo"}, "nothing: not found\n" + noSudo},
		"other":       {[]string{"nothing", "-c", "pseudo sudoku visudo"}, "nothing: not found\n"},
		"other-error": {[]string{"script", "exit(1) // sudo "}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := d.start(t.Context(), "", func(m *pb.StartRequest) { m.Process = &pb.ProcessConfig{Cmd: c.cmd[0], Args: c.cmd[1:]} })
			defer s.Close()
			if out, end := follow(s, ""); out != c.want || end.GetExitCode() == 0 {
				t.Errorf("got %q, %v, want %q", out, end, c.want)
			}
		})
	}
	_, err := startError(t, d, &pb.StartRequest{})
	wantCode(t, "no command", err, connect.CodeInvalidArgument)
	without := newDaemon(t, fake.Options{Capabilities: fake.Without(fake.All(), executor.FeatureCommand)})
	_, err = startError(t, without, &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "script"}})
	wantCode(t, "backend without commands", err, connect.CodeUnimplemented)
}

// A terminal has the size that was asked for, shows and takes bytes as such, and what is no
// terminal takes nothing of that.
func TestTerminals(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	pty := func(rows, cols uint32) *pb.PTY { return &pb.PTY{Size: &pb.PTY_Size{Rows: rows, Cols: cols}} }
	input := func(pid uint32, in *pb.ProcessInput) error {
		_, err := d.procs.SendInput(t.Context(), connect.NewRequest(&pb.SendInputRequest{Process: byPID(pid), Input: in}))
		return err
	}
	typed := func(text string) *pb.ProcessInput {
		return &pb.ProcessInput{Input: &pb.ProcessInput_Pty{Pty: []byte(text)}}
	}
	sent := func(text string) *pb.ProcessInput {
		return &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: []byte(text)}}
	}
	resize := func(pid uint32, p *pb.PTY) error {
		_, err := d.procs.Update(t.Context(), connect.NewRequest(&pb.UpdateRequest{Process: byPID(pid), Pty: p}))
		return err
	}

	pid, s := d.start(t.Context(), "print(terminal())\nresized()\nprint(terminal())\nprint(readline())\ninterrupt()\nexit(5)", func(m *pb.StartRequest) { m.Pty = pty(31, 91) })
	defer s.Close()
	if out, _ := follow(s, "\n"); out != "31 91\r\n" {
		t.Errorf("got %q", out)
	}
	for _, p := range []*pb.PTY{pty(0, 80), pty(24, 0), pty(24, 65536), pty(math.MaxUint32, math.MaxUint32)} {
		wantCode(t, p.String(), resize(pid, p), connect.CodeInvalidArgument)
	}
	if err := resize(pid, pty(40, 120)); err != nil {
		t.Error(err)
	}
	if out, _ := follow(s, "\n"); out != "40 120\r\n" {
		t.Errorf("got %q", out)
	}
	wantCode(t, "input to stdin", input(pid, sent("x")), connect.CodeInternal)
	wantCode(t, "no input", input(pid, nil), connect.CodeUnimplemented)
	_, err := d.procs.CloseStdin(t.Context(), connect.NewRequest(&pb.CloseStdinRequest{Process: byPID(pid)}))
	wantCode(t, "end of stdin", err, connect.CodeUnknown)
	for _, text := range []string{"ab\r", "\x03"} {
		if err := input(pid, typed(text)); err != nil {
			t.Error(err)
		}
	}
	if out, end := follow(s, ""); out != "ab\r\nab\r\n" || end.GetExitCode() != 5 {
		t.Errorf("got %q, %v", out, end)
	}
	wantCode(t, "size of what has ended", resize(pid, pty(24, 80)), connect.CodeNotFound)

	pid, plain := d.start(t.Context(), "forever()", nil)
	defer plain.Close()
	wantCode(t, "size of pipes", resize(pid, pty(24, 80)), connect.CodeInternal)
	wantCode(t, "keys for pipes", input(pid, typed("x")), connect.CodeInternal)
	_, err = startError(t, d, &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "script"}, Pty: pty(0, 0)})
	wantCode(t, "no size", err, connect.CodeInvalidArgument)
	without := newDaemon(t, fake.Options{Capabilities: fake.Without(fake.All(), executor.FeaturePTY)})
	_, err = startError(t, without, &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "script"}, Pty: &pb.PTY{}})
	wantCode(t, "backend without terminals", err, connect.CodeUnimplemented)
}

func startError(t *testing.T, d daemon, m *pb.StartRequest) (bool, error) {
	s, err := d.procs.Start(t.Context(), connect.NewRequest(m))
	if err != nil {
		return false, err
	}
	defer s.Close()
	return s.Receive(), s.Err()
}

// A process lives on when its client goes; what it says meanwhile is there for the next.
func TestReconnect(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	yes, tag := true, "t"
	ctx, cancel := context.WithCancel(t.Context())
	pid, s := d.start(ctx, "print(\"first\")\nprint(readline())\nprint(readline())", func(m *pb.StartRequest) { m.Stdin, m.Tag = &yes, &tag })
	follow(s, "first")
	cancel()
	s.Close()
	for path := range d.over { // before the server notices it would send to who has left
		if path == pb.ProcessStartProcedure {
			break
		}
	}
	send := func(text string) {
		_, err := d.procs.SendInput(t.Context(), connect.NewRequest(&pb.SendInputRequest{
			Process: &pb.ProcessSelector{Selector: &pb.ProcessSelector_Tag{Tag: tag}}, Input: &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: []byte(text)}},
		}))
		if err != nil {
			t.Error(err)
		}
	}
	send("one\n")
	l, err := d.procs.List(t.Context(), connect.NewRequest(&pb.ListRequest{}))
	if err != nil || len(l.Msg.Processes) != 1 || l.Msg.Processes[0].Pid != pid || l.Msg.Processes[0].Config.Cmd != "script" || *l.Msg.Processes[0].Tag != tag {
		t.Errorf("got %v, %v", l, err)
	}
	c, err := d.procs.Connect(t.Context(), connect.NewRequest(&pb.ConnectRequest{Process: byPID(pid)}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if out, _ := follow(c, "one\n"); !strings.HasSuffix(out, "one\n") {
		t.Errorf("got %q", out)
	}
	if _, err := d.procs.CloseStdin(t.Context(), connect.NewRequest(&pb.CloseStdinRequest{Process: byPID(pid)})); err != nil {
		t.Error(err)
	}
	if out, end := follow(c, ""); out != "null\n" || !end.GetExited() {
		t.Errorf("got %q, %v", out, end)
	}
	// Its end can be asked for again, but it takes neither input nor signals.
	again, err := d.procs.Connect(t.Context(), connect.NewRequest(&pb.ConnectRequest{Process: byPID(pid)}))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if out, end := follow(again, ""); out != "" || !end.GetExited() {
		t.Errorf("got %q, %v", out, end)
	}
	_, err = d.procs.SendSignal(t.Context(), connect.NewRequest(&pb.SendSignalRequest{Process: byPID(pid), Signal: pb.Signal_SIGNAL_SIGKILL}))
	wantCode(t, "signal to a process that has ended", err, connect.CodeNotFound)
}

func TestSignalsAndDeadlines(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	for signal, want := range map[pb.Signal]string{pb.Signal_SIGNAL_SIGKILL: "signal: killed", pb.Signal_SIGNAL_SIGTERM: "signal: terminated"} {
		pid, s := d.start(t.Context(), "print(1)\nforever()", nil)
		follow(s, "1\n")
		if _, err := d.procs.SendSignal(t.Context(), connect.NewRequest(&pb.SendSignalRequest{Process: byPID(pid), Signal: signal})); err != nil {
			t.Error(err)
		}
		if _, end := follow(s, ""); end.GetStatus() != want || end.GetExitCode() != -1 || end.GetExited() {
			t.Errorf("got %v, %v", end, s.Err())
		}
		_, err := d.procs.SendInput(t.Context(), connect.NewRequest(&pb.SendInputRequest{Process: byPID(pid)}))
		wantCode(t, "input to a process that has ended", err, connect.CodeNotFound)
		s.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, s := d.start(ctx, "print(1)\nforever()", nil)
	if _, end := follow(s, ""); end != nil {
		t.Errorf("got an end at the deadline: %v", end)
	}
	wantCode(t, "deadline", s.Err(), connect.CodeDeadlineExceeded)
	s.Close()
	// The deadline is that of the process as well.
	for {
		l, err := d.procs.List(t.Context(), connect.NewRequest(&pb.ListRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Msg.Processes) == 0 {
			break
		}
	}
	// Killing the sandbox ends its processes and their streams.
	_, s = d.start(t.Context(), "print(1)\nforever()", nil)
	follow(s, "1\n")
	d.want(204, "DELETE", "/sandboxes/"+d.box.SandboxID, "")
	if _, end := follow(s, ""); end != nil || s.Err() == nil {
		t.Errorf("got %v, %v", end, s.Err())
	}
	s.Close()
}

// Nobody hears the end of a process who could still find it: it is taken out of what lives while
// its feed cannot say so yet.
func TestEndIsLast(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	pid, s := d.start(t.Context(), "print(1)\nforever()", nil)
	defer s.Close()
	follow(s, "1\n")
	p, err := d.s.boxes[d.box.SandboxID].processes.find(byPID(pid))
	if err != nil {
		t.Fatal(err)
	}
	p.out.mu.Lock()
	unlock := sync.OnceFunc(p.out.mu.Unlock)
	defer unlock()
	p.stop(killed)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		l, err := d.procs.List(ctx, connect.NewRequest(&pb.ListRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Msg.Processes) == 0 {
			break
		}
	}
	unlock()
	if _, end := follow(s, ""); end == nil {
		t.Errorf("got no end: %v", s.Err())
	}
}

// Output that nobody reads is bounded; output that somebody reads slowly is complete.
func TestFeed(t *testing.T) {
	chunk := func(n int) *pb.ProcessEvent_DataEvent {
		return &pb.ProcessEvent_DataEvent{Output: &pb.ProcessEvent_DataEvent_Stdout{Stdout: bytes.Repeat([]byte{byte(n)}, backlog/4)}}
	}
	f := newFeed()
	for i := range 100 {
		if err := f.push(t.Context(), chunk(i)); err != nil {
			t.Fatal(err)
		}
	}
	if f.bytes > backlog+backlog/4 {
		t.Errorf("got %d bytes that nobody reads", f.bytes)
	}
	r := f.connect()
	var got []byte
	done := make(chan error)
	go func() {
		for i := range 100 {
			if err := f.push(t.Context(), chunk(100+i)); err != nil {
				done <- err
			}
		}
		f.finish(nil, nil)
		close(done)
	}()
	for {
		c, end, wait := r.read()
		if c != nil {
			got = append(got, c.GetStdout()[0])
			continue
		}
		if end {
			break
		}
		<-wait
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	r.close()
	for i := 1; i < len(got); i++ {
		if got[i] != got[i-1]+1 {
			t.Fatalf("got %d after %d", got[i], got[i-1])
		}
	}
	if len(got) < 100 || got[len(got)-1] != 199 {
		t.Errorf("got %d chunks, the last is %d", len(got), got[len(got)-1])
	}
}

// Parts of files, as clients ask for them that go on with a download.
func TestRanges(t *testing.T) {
	d := newDaemon(t, fake.Options{})
	d.ask(200, d.http, "POST", "path=a", octets, []byte("0123456789"))
	for header, want := range map[string]string{"bytes=0-0": "0", "bytes=3-5": "345", "bytes=7-": "789", "bytes=-2": "89", "bytes=5-500": "56789"} {
		if got := d.ask(206, d.http, "GET", "path=a", "", nil, "Range", header); string(got) != want {
			t.Errorf("%s: got %q, want %q", header, got, want)
		}
	}
	if got := string(d.ask(206, d.http, "GET", "path=a", "", nil, "Range", "bytes=8-9,1-2")); !strings.Contains(got, "\r\n89\r\n") || !strings.Contains(got, "\r\n12\r\n") {
		t.Errorf("got %q", got)
	}
	d.ask(416, d.http, "GET", "path=a", "", nil, "Range", "bytes=10-")
	d.ask(200, d.http, "HEAD", "path=a", "", nil)
	e, err := d.files.Stat(t.Context(), connect.NewRequest(&fspb.StatRequest{Path: "a"}))
	if err != nil {
		t.Fatal(err)
	}
	d.ask(304, d.http, "GET", "path=a", "", nil, "If-Modified-Since", e.Msg.Entry.ModifiedTime.AsTime().Add(time.Second).UTC().Format(http.TimeFormat))
}
