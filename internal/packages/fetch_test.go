package packages

import (
	"bufio"
	"bytes"
	"path/filepath"
	"testing"
)

// The output of a builder is not trusted.
func FuzzFetched(f *testing.F) {
	for _, s := range []string{
		`{"packages":[["a","1"]],"files":[["a.py",3,false],["b/c.so",0,true]]}`, `{"files":[["../a",1,false]]}`, `{"files":[["/a",1,false]]}`,
		`{"files":[["a",-1,false]]}`, `{"files":[["a",1]]}`, `{"files":[["a",1,false,1]]}`, `{"files":[[]]}`, `{"files":[null]}`, `{"kind":"failed","error":"ERROR: x"}`, `[]`, `null`,
	} {
		f.Add([]byte(s + "\n"))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		head, raw, err := readHead(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			return
		}
		if !bytes.HasPrefix(b, raw) {
			t.Errorf("got %q of %q", raw, b)
		}
		for _, p := range head.Files {
			if p.size < 0 || !filepath.IsLocal(p.name) || p.name == "." {
				t.Errorf("got %+v", p)
			}
		}
		if err := (&Fetch{}).explain(head); len(err.Error()) > 2*maxPipErrors {
			t.Errorf("got an error of %d bytes", len(err.Error()))
		}
	})
}
