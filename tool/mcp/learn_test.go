package mcp_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/tool"
	"github.com/execbroker/execbroker/tool/mcp"
)

// described is an Executor whose code says that it is Python 3.13.5 with numpy.
type described struct{ executor.Executor }

func (x described) Create(ctx context.Context, spec executor.Spec) (executor.Session, error) {
	s, err := x.Executor.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return describing{s}, nil
}

type describing struct{ executor.Session }

func (describing) Run(context.Context, executor.Request, func(executor.Event) error) (*executor.Result, error) {
	return &executor.Result{Status: executor.StatusOK, Stdout: executor.Bytes(`{"Version": "3.13.5", "Packages": {"numpy": "2.2.4"}}`)}, nil
}

// The list of tools says what is in the sandbox. A backend that does not answer delays the list
// only briefly; clients are told later.
func TestListTellsWhatIsThere(t *testing.T) {
	for _, away := range []bool{false, true} {
		t.Run(map[bool]string{false: "there", true: "away"}[away], func(t *testing.T) {
			t.Parallel()
			b := fake.New(fake.Options{})
			x, err := b.Open(driver.Env{Instance: "a"})
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			m, err := sessions.New(x, sessions.NewMemoryStore(), sessions.Options{Instance: "a"})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close(context.WithoutCancel(t.Context()))
			tl, err := tool.New(described{x}, m, tool.Options{})
			if err != nil {
				t.Fatal(err)
			}
			release := func() {}
			if away {
				release = b.Hold(fake.OpCreate)
			}
			defer release()
			s := mcp.New(tl, mcp.Options{})
			defer s.Close()
			changed := make(chan struct{}, 10)
			c, _ := connect(t, s, &sdk.ClientOptions{ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { changed <- struct{}{} }})
			list := func() string {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				tools, err := c.ListTools(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, tool := range tools.Tools {
					if tool.Name == "execute_code" {
						text, err := json.Marshal(tool.InputSchema)
						if err != nil {
							t.Fatal(err)
						}
						return string(text)
					}
				}
				t.Fatal("no execute_code")
				return ""
			}
			got := list()
			if away {
				if strings.Contains(got, "3.13.5") {
					t.Errorf("got %s of a backend that has not answered", got)
				}
				release()
				<-changed
				got = list()
			}
			has(t, got, "python is 3.13.5.", "Installed for python: numpy 2.2.4.")
			res := call(t, c, "get_capabilities", nil)
			var doc struct {
				Languages []struct {
					Version   string
					Installed map[string]string `json:"installed_packages"`
				}
			}
			structured(t, res, &doc)
			if l := doc.Languages[0]; l.Version != "3.13.5" || l.Installed["numpy"] != "2.2.4" {
				t.Errorf("got %+v", l)
			}
			has(t, text(res), "python is 3.13.5.")
			if n := b.Calls(fake.OpCreate); n != 1 {
				t.Errorf("%d sandboxes were made to look at, want 1", n)
			}
		})
	}
}
