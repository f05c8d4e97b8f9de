package docker

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/execbroker/execbroker/docker/dockertest"
	"github.com/execbroker/execbroker/executor"
)

// What figures of matplotlib show comes as data beside their images.
func TestCharts(t *testing.T) {
	t.Parallel()
	x := open(t, func(c *Config) { c.Image = dockertest.Python })
	s, err := x.Create(t.Context(), executor.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct{ name, code, want string }{
		{"line", "plt.plot([1, 2], [3, float('nan')], label='a'); plt.axhline(9); plt.title('t'); plt.xlabel('time (s)'); plt.xticks([1, 2]); plt.yticks([3])",
			`{"type":"line","title":"t","elements":[{"label":"a","points":[[1,3],[2,null]]}],"x_label":"time (s)","x_unit":"s","x_scale":"linear",` +
				`"x_ticks":[1,2],"x_tick_labels":["1","2"],"y_label":null,"y_unit":null,"y_scale":"linear","y_ticks":[3],"y_tick_labels":["3"]}`},
		{"dates", "import datetime; plt.plot([datetime.date(2026, 1, 2)], [1]); plt.yscale('log'); plt.xticks([]); plt.yticks([]); plt.minorticks_off()",
			`{"type":"line","title":"","elements":[{"label":"","points":[["2026-01-02T00:00:00+00:00",1]]}],"x_label":null,"x_unit":null,"x_scale":"datetime",` +
				`"x_ticks":[],"x_tick_labels":[],"y_label":null,"y_unit":null,"y_scale":"log","y_ticks":[],"y_tick_labels":[]}`},
		{"scatter", "plt.scatter(['u', 'v'], [1, 2]); plt.yticks([])",
			`{"type":"scatter","title":"","elements":[{"label":"","points":[["u",1],["v",2]]}],"x_label":null,"x_unit":null,"x_scale":"categorical",` +
				`"x_ticks":["u","v"],"x_tick_labels":["u","v"],"y_label":null,"y_unit":null,"y_scale":"linear","y_ticks":[],"y_tick_labels":[]}`},
		{"bars", "plt.bar(['p', 'q'], [1, 2], label='one'); plt.ylabel('mass [kg]')",
			`{"type":"bar","title":"","elements":[{"label":"p","group":"one","value":1},{"label":"q","group":"one","value":2}],` +
				`"x_label":null,"x_unit":null,"y_label":"mass [kg]","y_unit":"kg"}`},
		{"groups", "ax = plt.gca(); ax.bar([-.2, .8], [1, 2], .4, label='g'); ax.bar([.2, 1.2], [3, 4], .4, label='h'); ax.set_xticks([0, 1], ['p', 'q'])",
			`{"type":"bar","title":"","elements":[{"label":"p","group":"g","value":1},{"label":"q","group":"g","value":2},` +
				`{"label":"p","group":"h","value":3},{"label":"q","group":"h","value":4}],"x_label":null,"x_unit":null,"y_label":null,"y_unit":null}`},
		{"lying", "plt.barh([1, 2], [7, 8])",
			`{"type":"bar","title":"","elements":[{"label":"1","group":"","value":7},{"label":"2","group":"","value":8}],"x_label":null,"x_unit":null,"y_label":null,"y_unit":null}`},
		{"pie", "plt.pie([1, 3], labels=['x', 'y'], radius=2)",
			`{"type":"pie","title":"","elements":[{"label":"x","angle":90,"radius":2},{"label":"y","angle":270,"radius":2}]}`},
		{"boxes", "plt.boxplot([1, 2, 3]); plt.cla(); plt.boxplot([[1, 2, 3, 4, 100], [2, 3, 4]], tick_labels=['o', 'p'])",
			`{"type":"box_and_whisker","title":"","elements":[{"label":"o","min":1,"first_quartile":2,"median":3,"third_quartile":4,"max":4,"outliers":[100]},` +
				`{"label":"p","min":2,"first_quartile":2.5,"median":3,"third_quartile":3.5,"max":4,"outliers":[]}],"x_label":null,"x_unit":null,"y_label":null,"y_unit":null}`},
		{"several", "f, (a, b) = plt.subplots(1, 2); a.pie([1], labels=['x']); b.imshow([[1]]); f.colorbar(b.images[0], ax=b); f.suptitle('all')",
			`{"type":"superchart","title":"all","elements":[{"type":"pie","title":"","elements":[{"label":"x","angle":360,"radius":1}]},` +
				`{"type":"unknown","title":"","elements":[],"x_label":null,"x_unit":null,"y_label":null,"y_unit":null}]}`},
		{"value", "f = plt.figure(); f.gca().pie([1]); plt.close(); f", `{"type":"pie","title":"","elements":[{"label":"","angle":360,"radius":1}]}`},
		{"empty", "plt.figure()", ""},
		{"most", "plt.plot(range(10_001))", ""},
		{"hostile", "class Odd(float):\n    def __float__(self): raise SystemError('odd')\nplt.bar([1], [1])[0].get_height = lambda: Odd()", ""},
	} {
		res, err := s.Run(t.Context(), executor.Request{Code: "import matplotlib.pyplot as plt\n" + c.code}, nil)
		if err != nil || res.Status != executor.StatusOK || strings.Contains(string(res.Stderr), "rror") {
			t.Errorf("%s: got %+v, %v", c.name, res, err)
			continue
		}
		var got []string
		images := 0
		for _, o := range res.Outputs {
			if len(o.Data["image/png"]) > 0 {
				images++
				got = append(got, string(o.Data["e2b/chart"]))
			}
		}
		if images != 1 || !sameJSON(t, got[0], c.want) {
			t.Errorf("%s: got %d images and %s\nwant %s", c.name, images, got, c.want)
		}
	}
}

// sameJSON compares two texts; "" is the same as "" only.
func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	if a == "" || b == "" {
		return a == b
	}
	var forms [2]string
	for i, text := range []string{a, b} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Error(err)
		}
		form, err := json.Marshal(v) // with sorted names
		if err != nil {
			t.Error(err)
		}
		forms[i] = string(form)
	}
	return forms[0] == forms[1]
}
