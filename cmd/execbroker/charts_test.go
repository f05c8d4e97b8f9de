//go:build unix

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mattn/go-sixel"
)

// chart returns a PNG of one colour.
func chart(t testing.TB, width, height int) []byte {
	t.Helper()
	m := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{color.NRGBA{R: 255, A: 255}})
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// bomb returns a PNG of a few bytes that claims a large size.
func bomb(width, height uint32) []byte {
	head := binary.BigEndian.AppendUint32([]byte("IHDR"), width)
	head = append(binary.BigEndian.AppendUint32(head, height), 8, 2, 0, 0, 0)
	b := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d"), head...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(head))
}

// showing returns code that shows an image of a type.
func showing(mime string, data []byte) string {
	var b strings.Builder
	for _, c := range data {
		fmt.Fprintf(&b, `\x%02x`, c)
	}
	return fmt.Sprintf(`show("text/plain", "pic", %q, b"%s")`, mime, b.String())
}

// The answers of terminals about their protocols.
var (
	kittyTerminal = map[string]string{askKitty: "\x1b_Gi=31;OK\x1b\\", askName: "\x1bP>|kitty(0.42)\x1b\\", askSize: "\x1b[4;300;400t", askAttributes: "\x1b[?62;c"}
	itermTerminal = map[string]string{askName: "\x1bP>|iTerm2 3.5.0\x1b\\", askAttributes: "\x1b[?62;4c"}
	oldITerm      = map[string]string{askAttributes: "\x1b[?1;2c"}
	sixelTerminal = map[string]string{askKitty: "\x1b_Gi=31;EINVAL\x1b\\", askSize: "\x1b[4;300;400t", askAttributes: "\x1b[?64;1;4;22c"}
	plainTerminal = map[string]string{askSize: "\x1b[4;300;400t", askAttributes: "\x1b[?4;1;22c"} // the first 4 is a VT132
)

var (
	kittyForm = regexp.MustCompile(`\x1b_G(?:a=T,f=100,q=2,)?m=([01]);([A-Za-z0-9+/=]*)\x1b\\`)
	itermForm = regexp.MustCompile(`\x1b]1337;File=inline=1;size=(\d+);preserveAspectRatio=1:([A-Za-z0-9+/=]*)\x07`)
	sixelForm = regexp.MustCompile(`\x1bP0;0;8q[^\x1b]*\x1b\\`)
)

// pictures decodes the images that a terminal was sent.
func pictures(t *testing.T, screen string) (found []image.Image) {
	t.Helper()
	decode := func(text string) {
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		m, err := png.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, m)
	}
	part := ""
	for _, m := range kittyForm.FindAllStringSubmatch(screen, -1) {
		if part += m[2]; len(m[2]) > 4096 || m[1] == "1" && len(m[2]) != 4096 {
			t.Errorf("a piece of %d bytes", len(m[2]))
		}
		if m[1] == "0" {
			decode(part)
			part = ""
		}
	}
	for _, m := range itermForm.FindAllStringSubmatch(screen, -1) {
		decode(m[2])
	}
	for _, text := range sixelForm.FindAllString(screen, -1) {
		var m image.Image
		if err := sixel.NewDecoder(strings.NewReader(text)).Decode(&m); err != nil {
			t.Fatal(err)
		}
		found = append(found, m)
	}
	return found
}

// all waits for the end of the process and returns what it has written.
func (s *terminal) all(want int) string {
	s.t.Helper()
	s.ends(want)
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen
}

// Charts are shown if possible, at most as large as the window, and saved otherwise.
func TestChartsOnTerminal(t *testing.T) {
	t.Parallel()
	var moving bytes.Buffer
	frame := image.NewPaletted(image.Rect(0, 0, 40, 20), color.Palette{color.Black, color.White})
	if err := gif.EncodeAll(&moving, &gif.GIF{Image: []*image.Paletted{frame, frame}, Delay: []int{1, 1}}); err != nil {
		t.Fatal(err)
	}
	small, large := chart(t, 40, 20), chart(t, 2000, 1000)
	dot := image.Pt(40, 20)
	for name, c := range map[string]struct {
		answers map[string]string
		env     []string
		mime    string // empty: PNG
		data    []byte
		out     bool
		shown   image.Point // size of the shown image; zero: it is saved
	}{
		"kitty":           {answers: kittyTerminal, data: small, shown: dot},
		"kitty-large":     {answers: kittyTerminal, data: large, shown: image.Pt(400, 200)},
		"kitty-tall":      {answers: kittyTerminal, data: chart(t, 100, 3000), shown: image.Pt(10, 300)},
		"kitty-gif":       {answers: kittyTerminal, mime: "image/gif", data: moving.Bytes(), shown: dot},
		"kitty-out":       {answers: kittyTerminal, data: small, out: true, shown: dot},
		"kitty-by-name":   {answers: oldITerm, env: []string{"KITTY_WINDOW_ID=1", "TERM=xterm-kitty"}, data: small}, // the name may be that of another terminal
		"iterm":           {answers: itermTerminal, data: large, shown: image.Pt(800, 400)},
		"iterm-by-name":   {answers: oldITerm, env: []string{"TERM_PROGRAM=iTerm.app"}, data: small, shown: dot},
		"iterm-over-ssh":  {answers: oldITerm, env: []string{"LC_TERMINAL=iTerm2"}, data: small, shown: dot},
		"sixel":           {answers: sixelTerminal, data: small, shown: dot},
		"sixel-large":     {answers: sixelTerminal, data: large, shown: image.Pt(400, 200)},
		"sixel-in-tmux":   {answers: sixelTerminal, env: []string{"TMUX=/x", "TERM_PROGRAM=tmux"}, data: small, shown: dot},
		"tmux-in-iterm":   {answers: plainTerminal, env: []string{"TMUX=/x", "LC_TERMINAL=iTerm2"}, data: small},
		"plain":           {answers: plainTerminal, data: small},
		"plain-out":       {answers: plainTerminal, data: small, out: true},
		"dumb":            {answers: kittyTerminal, env: []string{"TERM=dumb"}, data: small},
		"silent":          {data: small},
		"vector":          {answers: kittyTerminal, mime: "image/svg+xml", data: []byte("<svg/>")},
		"jpeg":            {answers: kittyTerminal, mime: "image/jpeg", data: small},
		"broken":          {answers: kittyTerminal, data: []byte("12345")},
		"cut-off":         {answers: kittyTerminal, data: small[:len(small)-20]},
		"bomb":            {answers: kittyTerminal, data: bomb(1<<20, 1<<20)},
		"long":            {answers: kittyTerminal, data: bomb(1, 1<<30)},
		"too-large":       {answers: kittyTerminal, data: chart(t, 5000, 4000)},
		"sequence-within": {answers: kittyTerminal, data: []byte("\x1b\\\x1b]0;title\x07")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.mime == "" {
				c.mime = "image/png"
			}
			// What the code itself writes to the terminal is dropped as usual.
			code := `out("before\x1b_Ga=T,f=100;AAAA\x1b\\after")` + "\n" + showing(c.mime, c.data)
			p := command(t, "run", "-c", code)
			if c.out {
				p.Args = append(p.Args, "--out", "kept")
			}
			tmp := t.TempDir()
			s := onAnswering(t, p, c.answers, append([]string{"TMPDIR=" + tmp, "TMUX=", "STY=", "TERM_PROGRAM=", "LC_TERMINAL="}, c.env...)...)
			screen := s.all(exitOK)
			p.clean(t)
			_, output, _ := strings.Cut(screen, "before")
			if !strings.HasPrefix(output, "after\r\n") {
				t.Errorf("got the text %.80q", output)
			}
			got := pictures(t, output)
			if c.shown == (image.Point{}) {
				if len(got) > 0 || strings.ContainsAny(output, "\x1b\x07") {
					t.Errorf("got %d images, %.200q", len(got), output)
				}
			} else if len(got) != 1 || got[0].Bounds().Size() != c.shown {
				t.Fatalf("got %d images in %.200q, want one of %v", len(got), output, c.shown)
			} else if r, _, b, _ := got[0].At(5, 5).RGBA(); r < 0xf000 && c.mime == "image/png" || b > 0x1000 {
				t.Errorf("got the colour %v", got[0].At(5, 5))
			}
			saved, err := filepath.Glob(filepath.Join(tmp, "execbroker-charts-*", "output-1.*"))
			if c.out {
				saved, err = filepath.Glob(filepath.Join(p.Dir, "kept", "output-1.*"))
			}
			if want := c.out || c.shown == (image.Point{}); err != nil || (len(saved) == 1) != want || len(saved) > 1 {
				t.Fatalf("got the files %q, %v", saved, err)
			}
			for _, file := range saved {
				if data := read(t, file); data != string(c.data) {
					t.Errorf("got %q in the file", data)
				}
				contains(t, output, "saved ", filepath.Base(file))
			}
		})
	}
}

// Without a terminal charts are saved where only the user can read them.
func TestChartsWithoutTerminal(t *testing.T) {
	t.Parallel()
	p := command(t, "repl")
	p.Stdin = strings.NewReader(showing("image/png", chart(t, 4, 4)) + "\n" + showing("image/png", chart(t, 5, 5)) + "\n")
	tmp := t.TempDir()
	p.Env = append(p.Env, "TMPDIR="+tmp)
	if err := p.Run(); err != nil || p.out.String() != "pic\npic\n" {
		t.Errorf("got %v, %q", err, p.out.String())
	}
	contains(t, p.err.String(), "saved "+tmp, "output-1.png (image/png, ", "saved "+tmp, "output-2.png (image/png, ")
	dirs, err := filepath.Glob(filepath.Join(tmp, "execbroker-charts-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("got %q, %v", dirs, err)
	}
	if info, err := os.Stat(dirs[0]); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v", info, err)
	}
	tmp = t.TempDir()
	p = command(t, "run", "--json", "-c", showing("image/png", chart(t, 4, 4)))
	p.Env = append(p.Env, "TMPDIR="+tmp)
	if err := p.Run(); err != nil || !strings.Contains(p.out.String(), `"image/png"`) {
		t.Errorf("got %v, %q", err, p.out.String())
	}
	// What fly-go links makes a directory of its own there when a program begins.
	if dirs, err := filepath.Glob(filepath.Join(tmp, "execbroker-*")); err != nil || len(dirs) > 0 {
		t.Errorf("got %q, %v", dirs, err)
	}
}

// Text that is typed while the terminal is asked is not lost, and is not taken for an answer.
func TestTypingWhileTheTerminalIsAsked(t *testing.T) {
	t.Parallel()
	answers := map[string]string{askKitty: "6 *", askSize: "\x1b[4;300;400t 7", askAttributes: "\r\x1b[?62;22c"}
	s := onAnswering(t, command(t, "repl"), answers)
	s.see(">>> ", "6 * 7\r\n", "42\r\n", ">>> ")
	s.keys("\x04")
	s.ends(0)
	s = onAnswering(t, command(t, "run", "-c", `print("hello " + readline())`), map[string]string{askName: "wor", askAttributes: "\x1b[?62;22cld\r"})
	s.see("hello world\r\n")
	s.ends(0)
	s = onAnswering(t, command(t, "run", "-c", `forever()`), map[string]string{askAttributes: "\x03\x1b[?62;22c"})
	s.ends(130)
}

// A program in the background asks nothing, because changing the terminal from there would stop it.
func TestChartsInTheBackground(t *testing.T) {
	t.Parallel()
	p := command(t, "run", "-c", `print("ran")`)
	p.Args = append([]string{"sh", "-mc", `"$0" "$@" & wait $!`, p.Path}, p.Args[1:]...)
	p.Path = "/bin/sh"
	s := onAnswering(t, p, kittyTerminal)
	s.see("ran\r\n")
	s.ends(0)
}

func FuzzParseAnswers(f *testing.F) {
	f.Add([]byte("\x1b_Gi=31;OK\x1b\\typed\x1bP>|kitty\x1b\\\x1b[4;300;400t\x1b[?62;4c"))
	f.Add([]byte("\x1b[4;99999;99999t\x1b[?"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a := parseAnswers(data)
		if len(a.typed) > len(data) || a.width < 0 || a.height < 0 {
			t.Errorf("got %+v", a)
		}
		if a.attributes == nil && bytes.IndexByte(a.typed, escape) >= 0 && answerForm.Find(data) == nil {
			t.Errorf("got %q, typed by nobody", a.typed)
		}
	})
}

// FuzzDraw tests that for any data the terminal gets one image that fits, or nothing.
func FuzzDraw(f *testing.F) {
	f.Add(chart(f, 30, 10))
	f.Add(bomb(1<<20, 1<<20))
	f.Add([]byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, p := range []protocol{kitty, iterm, sixels} {
			text, err := graphics{protocol: p, width: 64, height: 48}.draw(data)
			if err != nil {
				continue
			}
			got := pictures(t, string(text))
			if len(got) != 1 {
				t.Fatalf("%s: got %d images in %.100q", p, len(got), text)
			}
			if size := got[0].Bounds().Size(); size.X < 1 || size.Y < 1 || size.X > 64 || size.Y > 48 {
				t.Errorf("%s: got an image of %v", p, size)
			}
			rest := sixelForm.ReplaceAllString(itermForm.ReplaceAllString(kittyForm.ReplaceAllString(string(text), ""), ""), "")
			if rest != "\n" {
				t.Errorf("%s: besides the image the terminal gets %.100q", p, rest)
			}
		}
	})
}
