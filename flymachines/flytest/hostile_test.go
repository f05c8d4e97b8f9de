package flytest

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
)

func encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What clients send is checked, bounded, and refused in Fly's form; nothing of it starts anything.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	f := begin(t)
	auth := "Bearer " + f.Token()
	machines := "/v1/apps/" + testApp + "/machines"
	for name, c := range map[string]struct {
		method, path, body, want string
	}{
		"large":          {"POST", machines, `{"config":{"image":"` + strings.Repeat("x", maxBody) + `"}}`, "413"},
		"not-json":       {"POST", machines, "image=x", "400"},
		"two-values":     {"POST", machines, `{"config":{"image":"x"}} {}`, "400"},
		"wrong-type":     {"POST", machines, `{"config":{"image":7}}`, "400"},
		"null":           {"POST", machines, `null`, "400"},
		"no-config":      {"POST", machines, `{}`, "400"},
		"name":           {"POST", machines, `{"name":"../x","config":{"image":"x"}}`, "400"},
		"relative-file":  {"POST", machines, `{"config":{"image":"x","files":[{"guest_path":"etc/x","raw_value":""}]}}`, "400"},
		"climbing-file":  {"POST", machines, `{"config":{"image":"x","files":[{"guest_path":"/a/../../x","raw_value":""}]}}`, "400"},
		"file-not-coded": {"POST", machines, `{"config":{"image":"x","files":[{"guest_path":"/x","raw_value":"%"}]}}`, "400"},
		"secret-file":    {"POST", machines, `{"config":{"image":"x","files":[{"guest_path":"/x","secret_name":"S"}]}}`, "400"},
		"variable":       {"POST", machines, `{"config":{"image":"x","env":{"A=B":"c"}}}`, "400"},
		"stop-timeout":   {"POST", machines, `{"config":{"image":"x","stop_config":{"timeout":"1h"}}}`, "400"},
		"image-name":     {"POST", machines, `{"config":{"image":"UPPER CASE"}}`, "400"},
		"method":         {"PUT", machines, ``, "404"},
		"path":           {"GET", machines + "/../../../../etc/passwd", ``, ""},
		"machine":        {"GET", machines + "/%2e%2e", ``, "404"},
		"query":          {"GET", machines + "?metdata.x=y", ``, "400"},
	} {
		t.Run(name, func(t *testing.T) {
			got := f.exchange(c.method, c.path, auth, c.body)
			if !strings.HasPrefix(got, c.want) || strings.HasPrefix(got, "2") {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if c.want != "" && !strings.Contains(got, `"error"`) {
				t.Errorf("got %s, want Fly's form", got)
			}
		})
	}
	if left := f.Machines(testApp); len(left) > 0 {
		t.Errorf("made %q", left)
	}
	// A client that stops in the middle of a body delays nobody else.
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Length: 100\r\n\r\n{", machines, auth)
	f.ask(200, "GET", "/machines", nil, nil)
}

// FuzzConfig finds no configuration that breaks the parser, or that comes through it unchecked.
func FuzzConfig(f *testing.F) {
	f.Add(`{"image":"x","guest":{"cpu_kind":"shared","cpus":2,"memory_mb":512},"files":[{"guest_path":"/x","raw_value":"aGk=","mode":420}],"restart":{"policy":"no"}}`)
	f.Add(`{"image":"x","size":"performance-2x","stop_config":{"timeout":"5s","signal":"SIGKILL"},"services":[{"internal_port":8080,"protocol":"tcp"}]}`)
	f.Add(`{"image":"x","rootfs":{"persist":"never"},"init":{"exec":["a"],"swap_size_mb":512},"dns":{"nameservers":["::1"]},"mounts":[]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var raw map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &raw) != nil {
			return
		}
		c, _, err := parseConfig(raw)
		if err != nil {
			return
		}
		if c.Image == "" || c.Guest.MemoryMB < 256 || c.Guest.MemoryMB > math.MaxInt32 || c.Guest.CPUs < 1 || c.StopConfig.Timeout.Duration > maxStop {
			t.Errorf("got %+v", c)
		}
		if _, err := c.archive(); err != nil {
			t.Errorf("its files: %v", err)
		}
	})
}
