package all_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/backends/all"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/tool"
)

// charts is a program that saves and shows figures. It has a replacement for matplotlib, which not
// every sandbox has. The second figure is changed after it was saved. The third is an image that
// was read from a file.
const charts = `
import os
os.makedirs("lib/matplotlib", exist_ok=True)
open("lib/matplotlib/__init__.py", "w").close()
open("lib/matplotlib/figure.py", "w").write("""
class Figure:
    stale = True
    def __init__(self, n): self.n = n
    def savefig(self, f, format=None, **kwargs):
        data = b"\\x89PNG\\r\\n\\x1a\\n figure %d %s" % (self.n, b"shown" if format else b"saved")
        if format: f.write(data)
        else: open(f, "wb").write(data)
""")
open("lib/matplotlib/pyplot.py", "w").write("""
from matplotlib.figure import Figure
figures = {}
def get_fignums(): return sorted(figures)
def figure(n): return figures.setdefault(n, Figure(n))
def close(n): figures.pop(n, None)
""")
import sys
sys.path.insert(0, "lib")
import matplotlib.pyplot as plt
plt.figure(1).savefig("one.png")
plt.show()
plt.figure(2).savefig("two.png")
plt.figure(2).stale = True
plt.show()
from IPython.display import display, Image
open("three.png", "wb").write(b"\x89PNG\r\n\x1a\n three")
display(Image("three.png"))
`

// TestChartsAreReturnedOnce lets each backend show and save charts. A chart that is shown and saved
// unchanged is returned once.
func TestChartsAreReturnedOnce(t *testing.T) {
	t.Parallel()
	f := newFour(t)
	for _, name := range []string{local, box, cloud, machines} {
		t.Run(name, func(t *testing.T) {
			cfg, err := backends.Parse(fmt.Appendf(nil, "backends:\n  %s: {%s}\n", name, f.settings[name]))
			if err != nil {
				t.Fatal(err)
			}
			b, err := backends.Open(t.Context(), driver.Env{Owner: f.owner + "-charts"}, all.Registry(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			tl, err := tool.New(b, b.Manager(), tool.Options{})
			if err != nil {
				t.Fatal(err)
			}
			out, err := tl.Run(t.Context(), tool.Conversation{ID: "chat"}, tool.Input{Code: charts}, nil)
			if err != nil || !out.Success {
				t.Fatalf("%v: %+v", err, out)
			}
			var got []string
			for _, i := range out.Images {
				got = append(got, strings.TrimPrefix(string(i.Base64), "\x89PNG\r\n\x1a\n ")+" is "+i.File)
			}
			for _, f := range out.Files {
				if strings.HasSuffix(f.Name, ".png") {
					got = append(got, fmt.Sprintf("%s has its content: %v", f.Name, f.Base64 != nil))
				}
			}
			want := "figure 1 saved is one.png, figure 2 shown is , three is three.png, one.png has its content: false, three.png has its content: false, two.png has its content: true"
			if got := strings.Join(got, ", "); got != want {
				t.Errorf("got %s\nwant %s", got, want)
			}
		})
	}
}
