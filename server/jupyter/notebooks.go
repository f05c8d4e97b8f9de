package jupyter

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
)

// The bounds of what clients call notebooks.
const (
	maxNotebooks = 1000 // of a subject
	maxPath      = 1024
)

// notebook is what Jupyter calls a session: a document of a client, with the kernel of its cells.
type notebook struct {
	ID, Path, Name, Type string
	kernel               *kernel
}

// sessionModel is what clients get to know of a notebook.
type sessionModel struct {
	ID       string      `json:"id"`
	Path     string      `json:"path"`
	Name     string      `json:"name"`
	Type     string      `json:"type"`
	Kernel   kernelModel `json:"kernel"`
	Notebook struct {
		Path string `json:"path"`
		Name string `json:"name"`
	} `json:"notebook"` // for old clients
}

func (n *notebook) model() sessionModel {
	m := sessionModel{ID: n.ID, Path: n.Path, Name: n.Name, Type: n.Type, Kernel: n.kernel.model()}
	m.Notebook.Path, m.Notebook.Name = n.Path, n.Name
	return m
}

// sessionRequest makes or changes a notebook. What it does not name stays.
type sessionRequest struct {
	Path   *string `json:"path"`
	Name   *string `json:"name"`
	Type   *string `json:"type"`
	Kernel struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"kernel"`
}

// in makes an operation of one on a notebook of the client.
func in(f func(*call, *notebook) (int, any, error)) operation {
	return func(c *call) (int, any, error) {
		id := c.r.PathValue("session")
		c.mu.Lock()
		n := c.opened[id]
		c.mu.Unlock()
		if n == nil || n.kernel.spec.Subject != c.client.Subject {
			return 0, nil, refuse(http.StatusNotFound, "Session not found: session_id=%.100q", id)
		}
		return f(c, n)
	}
}

func (c *call) listSessions() (int, any, error) {
	all := []sessionModel{}
	for _, n := range c.notebooks() {
		all = append(all, n.model())
	}
	return http.StatusOK, all, nil
}

// notebooks returns those of the client's subject.
func (c *call) notebooks() []*notebook {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := slices.DeleteFunc(slices.Collect(maps.Values(c.opened)), func(n *notebook) bool { return n.kernel.spec.Subject != c.client.Subject })
	slices.SortFunc(own, func(a, b *notebook) int {
		return cmp.Or(a.kernel.created.Compare(b.kernel.created), cmp.Compare(a.ID, b.ID))
	})
	return own
}

func (c *call) createSession() (int, any, error) {
	var q sessionRequest
	if err := c.body(&q); err != nil {
		return 0, nil, err
	}
	own := c.notebooks()
	if i := slices.IndexFunc(own, func(n *notebook) bool { return q.Path != nil && n.Path == *q.Path }); i >= 0 {
		return http.StatusCreated, own[i].model(), nil // as the original does
	}
	if len(own) >= maxNotebooks {
		return 0, nil, refuse(http.StatusTooManyRequests, "there are %d sessions; close one first", len(own))
	}
	n, err := c.change(&notebook{ID: newID(), Type: "notebook"}, q)
	if err != nil {
		return 0, nil, err
	}
	c.w.Header().Set("Location", "/api/sessions/"+n.ID)
	return http.StatusCreated, n.model(), nil
}

func (c *call) getSession(n *notebook) (int, any, error) { return http.StatusOK, n.model(), nil }

func (c *call) changeSession(n *notebook) (int, any, error) {
	var q sessionRequest
	if err := c.body(&q); err != nil {
		return 0, nil, err
	}
	next, err := c.change(n, q)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, next.model(), nil
}

// change stores a changed copy of a notebook. A kernel that it no longer has is left to whoever
// uses it, as in the original.
func (c *call) change(n *notebook, q sessionRequest) (*notebook, error) {
	next := *n
	for field, v := range map[*string]*string{&next.Path: q.Path, &next.Name: q.Name, &next.Type: q.Type} {
		if v != nil && len(*v) > maxPath {
			return nil, refuse(http.StatusBadRequest, "path, name, type: want at most %d bytes", maxPath)
		}
		if v != nil {
			*field = *v
		}
	}
	var err error
	switch {
	case q.Kernel.ID != "":
		next.kernel, err = c.kernel(q.Kernel.ID)
	case next.kernel == nil || q.Kernel.Name != "" && q.Kernel.Name != next.kernel.about.name:
		next.kernel, err = c.start(q.Kernel.Name)
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kernels[next.kernel.id] != next.kernel {
		return nil, refuse(http.StatusNotFound, "the kernel has ended")
	}
	c.opened[next.ID] = &next
	return &next, nil
}

func (c *call) deleteSession(n *notebook) (int, any, error) {
	return http.StatusNoContent, nil, n.kernel.end(context.WithoutCancel(c.r.Context()))
}
