package guides

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/netnstest"
	"github.com/execbroker/execbroker/internal/waittest"
	"github.com/execbroker/execbroker/server"
)

// scene is what surrounds a guide while it is followed.
type scene struct {
	*testing.T
	ctx   context.Context
	sh    *shell
	dir   string // where the commands run
	users *users
}

// dial connects to an address that a command of the shell listens at.
func (s *shell) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if !s.alone {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	var c net.Conn
	err := netnstest.Of(s.cmd.Process.Pid, func() (err error) {
		c, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// url is where the last server of the guide serves.
func (s *scene) url() string {
	all := served.FindAllString(s.sh.out.from(0), -1)
	if len(all) == 0 {
		s.Fatal("nothing serves")
	}
	return strings.TrimPrefix(all[len(all)-1], "at ")
}

// users talk all the time while a guide is followed, one for each key of keys.json but those of
// operators and of eve, who does something else.
type users struct {
	s      *scene
	client *http.Client
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu  sync.Mutex
	all []*user
}

// user has a conversation. Each message adds one in its sandbox and prints the sum, so the sums
// show what ran: a message that was answered once, one of which nobody knows once or never.
type user struct {
	key, subject string
	sum          int  // of the last message that was answered; 0: none was
	may          int  // further messages that may have run since
	sent         int  // names the message
	wrong        bool // something was, and was said

	problem server.Problem // of the last message, if it was not answered
	kinds   map[string]int // of problems
	on      map[string]int // messages that were answered, by backend
	moves   []server.Turn  // each time that the conversation had lost its sandbox
}

// talk has users talk from now on, until all of them have been answered.
func talk(s *scene) {
	text, err := os.ReadFile(filepath.Join(s.dir, "keys.json"))
	if err != nil {
		s.Fatal(err)
	}
	var keys []struct {
		Key, Subject string
		Operator     bool
	}
	if err := json.Unmarshal(text, &keys); err != nil {
		s.Fatal(err)
	}
	transport := &http.Transport{DialContext: s.sh.dial}
	s.users = &users{s: s, client: &http.Client{Transport: transport}}
	for _, k := range keys {
		if !k.Operator && k.Subject != "eve" {
			s.users.all = append(s.users.all, &user{key: k.Key, subject: k.Subject, kinds: map[string]int{}, on: map[string]int{}})
		}
	}
	s.users.start()
	s.Cleanup(func() {
		s.users.silent()
		transport.CloseIdleConnections()
		for _, u := range s.users.all {
			s.Logf("%s: %d messages were answered, by backend %v; problems %v; %d other sandboxes", u.subject, u.sent, u.on, u.kinds, len(u.moves))
		}
	})
	s.users.until("is answered", func(u *user) bool { return u.sum > 0 })
}

// start has the users talk.
func (us *users) start() {
	ctx, cancel := context.WithCancel(us.s.ctx)
	us.cancel = cancel
	for _, u := range us.all {
		us.ended.Go(func() {
			for ctx.Err() == nil {
				us.say(ctx, u)
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond): // they read what they got
				}
			}
		})
	}
}

// silent waits until nobody talks any more.
func (us *users) silent() {
	us.cancel()
	us.ended.Wait()
}

// until waits until something is true of each user.
func (us *users) until(what string, is func(*user) bool) {
	us.s.Helper()
	waittest.Until(us.s, "every user "+what, func() error {
		us.mu.Lock()
		defer us.mu.Unlock()
		i := slices.IndexFunc(us.all, func(u *user) bool { return !is(u) })
		if i < 0 {
			return nil
		}
		u := us.all[i]
		return fmt.Errorf("%s: sum %d, backends %v, problems %v, last %+v\n%s", u.subject, u.sum, u.on, u.kinds, u.problem, us.s.sh.out.from(0))
	})
}

// sums returns the sum of each user.
func (us *users) sums() map[string]int {
	us.mu.Lock()
	defer us.mu.Unlock()
	all := map[string]int{}
	for _, u := range us.all {
		all[u.subject] = u.sum
	}
	return all
}

// goOn waits until each user has been answered again.
func (us *users) goOn() {
	us.s.Helper()
	before := us.sums()
	us.until("is answered again", func(u *user) bool { return u.sum > before[u.subject] })
}

// each calls f with each user.
func (us *users) each(f func(*user)) {
	us.mu.Lock()
	defer us.mu.Unlock()
	for _, u := range us.all {
		f(u)
	}
}

// same checks that nobody has lost a sandbox.
func (us *users) same() {
	us.s.Helper()
	us.each(func(u *user) {
		if len(u.moves) > 0 {
			us.s.Errorf("%s: got other sandboxes %+v", u.subject, u.moves)
		}
	})
}

// back has users talk again who know that what came after these sums may be lost, and waits until
// they are answered.
func (us *users) back(sums map[string]int) {
	us.s.Helper()
	us.each(func(u *user) {
		u.may += u.sum - sums[u.subject]
		u.sum = sums[u.subject]
	})
	us.start()
	us.until("is answered", func(u *user) bool { return len(u.moves) > 0 })
	us.goOn()
}

// open makes a session of a user besides the conversation.
func (us *users) open(u *user) {
	us.s.Helper()
	var made server.Session
	problem, err := us.post(us.s.ctx, u.key, "/v1/sessions", server.SessionRequest{}, &made)
	if err != nil || problem.Kind != "" {
		us.s.Fatalf("%s: %+v, %v", u.subject, problem, err)
	}
}

// say sends the next message of a user and judges the answer.
func (us *users) say(ctx context.Context, u *user) {
	us.mu.Lock()
	code := "n = n + 1\nprint(n)"
	if u.sum == 0 && u.may == 0 {
		code = "n = 1\nprint(n)"
	}
	id := fmt.Sprint("message-", u.sent)
	us.mu.Unlock()
	res, problem, err := us.run(ctx, u.key, "/v1/conversations/chat/run", server.RunRequest{ID: id, Language: executor.Python, Code: code})
	us.mu.Lock()
	defer us.mu.Unlock()
	u.problem = problem
	switch {
	case ctx.Err() != nil:
		u.may++
		return
	case err != nil: // the server is gone; the message is sent again
		u.kinds["gone"]++
		return
	case problem.Kind != "":
		if u.kinds[problem.Kind]++; problem.Ran != executor.RanNo.String() {
			u.may++
			u.sent++
		}
		return
	}
	u.sent++
	behind := 0
	if turn := res.Conversation; turn != nil && turn.Lost {
		u.moves = append(u.moves, *turn)
		if turn.Kept != nil {
			behind = turn.Kept.Behind
		}
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(res.Stdout)))
	if (err != nil || n < u.sum+1-behind || n > u.sum+1+u.may) && !u.wrong {
		u.wrong = true
		us.s.Errorf("%s: after %d, with %d messages of which nobody knows, got %+v, conversation %+v", u.subject, u.sum, u.may, res, res.Conversation)
	}
	u.sum, u.may = n, 0
	u.on[res.Origin.Backend]++
}

// run sends a request to run code. An error says that the server did not answer.
func (us *users) run(ctx context.Context, key, path string, r server.RunRequest) (res server.Result, problem server.Problem, err error) {
	problem, err = us.post(ctx, key, path, r, &res)
	return res, problem, err
}

func (us *users) ask(ctx context.Context, key, path string, request any) (*http.Response, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, us.s.url()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	return us.client.Do(req)
}

func (us *users) post(ctx context.Context, key, path string, request, answer any) (problem server.Problem, err error) {
	resp, err := us.ask(ctx, key, path, request)
	if err != nil {
		return problem, err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return problem, json.NewDecoder(resp.Body).Decode(&problem)
	}
	return problem, json.NewDecoder(resp.Body).Decode(answer)
}

// endless runs code without an end, and returns when it runs. The last thing that its stream says
// goes to the channel.
func (us *users) endless(ctx context.Context, key, path string) <-chan string {
	us.s.Helper()
	resp, err := us.ask(ctx, key, path, server.RunRequest{Language: executor.Python, Code: "while True: pass", TimeoutSeconds: 120})
	if err != nil {
		us.s.Fatal(err)
	}
	us.s.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	for !strings.Contains(lines.Text(), "started") {
		if !lines.Scan() {
			us.s.Fatalf("got status %d and %q, %v, before anything ran", resp.StatusCode, lines.Text(), lines.Err())
		}
	}
	last := make(chan string, 1)
	go func() {
		said := ""
		for lines.Scan() {
			if lines.Text() != "" {
				said = lines.Text()
			}
		}
		last <- said
	}()
	return last
}

// kill ends the server as a crash does.
func (s *scene) kill() {
	s.Helper()
	pid := s.server()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		s.Fatal(err)
	}
	waittest.Until(s, "the server ends", func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return nil
		}
		return fmt.Errorf("it is %s", stat)
	})
}

// server returns the process of the guide that serves.
func (s *scene) server() (pid int) {
	s.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.sh.cmd.Process.Pid))
	if err != nil {
		s.Fatal(err)
	}
	found := map[int]bool{}
	for child := range strings.FieldsSeq(string(children)) {
		line, err := os.ReadFile("/proc/" + child + "/cmdline")
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if n, _ := strconv.Atoi(child); strings.Contains(string(line), "\x00serve\x00") {
			found[n] = true
		}
	}
	if len(found) != 1 {
		s.Fatalf("got servers %v, want one", found)
	}
	for pid := range maps.Keys(found) {
		return pid
	}
	return 0
}
