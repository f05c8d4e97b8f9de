package live

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/conformance"
)

// planted are secrets of every kind: those that the kit knows, those that an answer tells by the
// names of its keys, and those that nobody has told, which only their form gives away.
const (
	plantedKey     = "fm2_lJPECAAAAAAAAplantedKEY/with+signs=="
	plantedApp     = "planted-app-of-somebody"
	plantedHidden  = "Planted Company"
	plantedOrg     = "planted-org"
	plantedToken   = "planted.envd.token"
	plantedUnknown = "Zk3Planted9Unknown7Secret"
)

func planted() []string {
	return []string{plantedKey, plantedApp, plantedHidden, plantedOrg, plantedToken, plantedUnknown}
}

func testScrubber(t *testing.T) *scrubber {
	t.Helper()
	svc := flyService()
	svc.texts["app"], svc.key = plantedApp, plantedKey
	return newScrubber(svc, &Options{Owner: "planted-owner", Hide: []string{plantedHidden}})
}

// TestNoSecretIsWritten plants secrets in every place of an exchange, and looks for them in all
// that is written.
func TestNoSecretIsWritten(t *testing.T) {
	t.Parallel()
	everything := func(text string) map[string]any {
		return map[string]any{
			"state": text, "message": "about " + text + " and `" + text + "`", "unknown": text, text: "value", "list": []any{text, map[string]any{"code": text}},
			"organization": map[string]any{"slug": plantedOrg, "name": plantedOrg}, "envdAccessToken": plantedToken, "number": int64(123456789012),
			"error": "the token " + base64.StdEncoding.EncodeToString([]byte(text)) + " of " + plantedOrg + " with " + plantedToken + " is " + url.QueryEscape(text),
		}
	}
	encode := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	frame := func(body string) string {
		return string(binary.BigEndian.AppendUint32([]byte{2}, uint32(len(body)))) + body
	}
	for _, secret := range planted() {
		tells := encode(map[string]any{"organization": map[string]any{"slug": plantedOrg}, "envdAccessToken": plantedToken})
		for name, body := range map[string]string{
			"json": encode(everything(secret)), "lines": encode(everything(secret)) + "\n" + tells + "\nnot json " + secret + "\n",
			"frames": frame(encode(everything(secret))) + frame(tells), "text": "the app " + secret + " is not there", "none": "",
		} {
			rec := &recorder{scrub: testScrubber(t)}
			at, err := url.Parse("https://api.example/v1/apps/" + url.PathEscape(secret) + "/machines?state=" + url.QueryEscape(secret) + "&metadata." + url.QueryEscape(secret) + "=1")
			if err != nil {
				t.Fatal(err)
			}
			h := http.Header{}
			for _, k := range append([]string{"Authorization", "X-Api-Key", "Cookie", "X-Anything"}, keptHeaders...) {
				h[k] = []string{secret, "Bearer " + secret}
			}
			req := &http.Request{Method: "POST", URL: at, Header: h}
			// The answer tells what is secret; the next exchange has it in its message.
			rec.add("", req, []byte(tells), &http.Response{StatusCode: 200, Header: h}, []byte(body))
			rec.add("a-trap", req, []byte(body), &http.Response{StatusCode: 500, Header: h}, []byte(body))
			dir := t.TempDir()
			if err := prepare(dir); err != nil {
				t.Fatal(err)
			}
			known := secret
			if secret == plantedUnknown { // in an error of the suite nobody can tell it from a word
				known = plantedKey
			}
			r := &Result{Plan: "for " + plantedKey, Stopped: known, Left: []string{known}, Report: &conformance.Report{Cases: []conformance.Line{{ID: "a", Reason: "said " + known}}}}
			if err := write(dir, r, rec); err != nil {
				t.Fatal(err)
			}
			files := 0
			err = filepath.WalkDir(dir, func(file string, d os.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				f, err := os.Open(file)
				if err != nil {
					return err
				}
				defer f.Close()
				data, err := io.ReadAll(f)
				files++
				for _, s := range planted() {
					raw := []byte(s)
					for _, form := range []string{s, url.QueryEscape(s), base64.StdEncoding.EncodeToString(raw), base64.RawURLEncoding.EncodeToString(raw)} {
						if strings.Contains(string(data)+file, form) {
							t.Errorf("%s planted in %s: %s has %q:\n%s", secret, name, filepath.Base(file), form, data)
						}
					}
				}
				return err
			})
			if err != nil || files < 6 {
				t.Fatalf("got %d files, %v", files, err)
			}
		}
	}
}

// TestWhatIsKept keeps what makes an exchange worth to be compared with.
func TestWhatIsKept(t *testing.T) {
	t.Parallel()
	s := testScrubber(t)
	body := `{"error":"deadline_exceeded: machine failed to reach desired state, started, currently stopped","status":"unknown","id":"3d8d9e4b","n":1}`
	want := `{
  "error": "deadline_exceeded: machine failed to reach desired state, started, currently stopped",
  "id": "STRING",
  "n": 0,
  "status": "unknown"
}
`
	if got := s.body([]byte(body)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	at, err := url.Parse("/v1/apps/x/machines/3d8d/wait?state=started&timeout=60")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.path(at), "/v1/apps/ID/machines/ID/wait?state=started&timeout=60"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func FuzzScrub(f *testing.F) {
	f.Add([]byte(`{"a":["b",{"token":"c"}]}`))
	f.Add([]byte("\x00\x00\x00\x00\x02{}"))
	f.Add([]byte("{}\n{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &scrubber{secret: map[string]string{}}
		s.learn("SECRET", plantedKey)
		if got := s.body(append(data, plantedKey...)); strings.Contains(got, plantedKey) {
			t.Errorf("got %q", got)
		}
	})
}
