package jupyter

import (
	"context"
	"net/http"
	"time"

	"github.com/execbroker/execbroker/executor/sessions"
)

// forgotten is how long a kernel without connections is kept that nobody uses.
const forgotten = 24 * time.Hour

// kernelModel is what clients get to know of a kernel.
type kernelModel struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Activity    string `json:"last_activity"`
	State       string `json:"execution_state"`
	Connections int    `json:"connections"`
}

func (k *kernel) model() kernelModel {
	k.mu.Lock()
	defer k.mu.Unlock()
	return kernelModel{k.id, k.about.name, stamp(k.activity), k.state, len(k.conns)}
}

// used is when the kernel was last used.
func (k *kernel) used() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.activity
}

// unused reports whether nobody has used the kernel for a long time.
func (k *kernel) unused() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.conns) == 0 && !k.working && time.Since(k.activity) > forgotten
}

// on makes an operation of one on a kernel of the client.
func on(f func(*call, *kernel) (int, any, error)) operation {
	return func(c *call) (int, any, error) {
		k, err := c.kernel(c.r.PathValue("id"))
		if err != nil {
			return 0, nil, err
		}
		return f(c, k)
	}
}

// kernel returns a kernel of the client's subject. Those of others do not exist for it.
func (c *call) kernel(id string) (*kernel, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.kernels[id]; k != nil && k.spec.Subject == c.client.Subject {
		return k, nil
	}
	return nil, refuse(http.StatusNotFound, "Kernel does not exist: %.100s", id)
}

func (c *call) listKernels() (int, any, error) {
	all := []kernelModel{}
	for _, k := range c.own() {
		all = append(all, k.model())
	}
	return http.StatusOK, all, nil
}

func (c *call) createKernel() (int, any, error) {
	var q struct {
		Name string `json:"name"`
	}
	if err := c.body(&q); err != nil {
		return 0, nil, err
	}
	k, err := c.start(q.Name)
	if err != nil {
		return 0, nil, err
	}
	c.w.Header().Set("Location", "/api/kernels/"+k.id)
	return http.StatusCreated, k.model(), nil
}

// start makes a kernel, with its sandbox.
func (c *call) start(name string) (*kernel, error) {
	about, err := c.spec(name)
	if err != nil {
		return nil, err
	}
	own := c.own()
	for _, k := range own {
		if k.unused() {
			if err := k.end(c.r.Context()); err != nil {
				c.cfg.Log.WarnContext(c.r.Context(), "ending a forgotten kernel", "kernel", k.id, "err", err)
			}
		}
	}
	k := c.newKernel(about, c.client)
	c.mu.Lock()
	n := 0
	for _, other := range c.kernels {
		if other.spec.Subject == c.client.Subject {
			n++
		}
	}
	if n >= c.cfg.MaxKernels || c.ctx.Err() != nil {
		c.mu.Unlock()
		k.stop()
		return nil, refuse(http.StatusTooManyRequests, "there are %d kernels; shut one down first", n)
	}
	c.kernels[k.id] = k
	c.mu.Unlock()
	err = k.call(c.r.Context(), false, func(context.Context, *sessions.Lease) error { return nil })
	if err != nil {
		if err := k.end(context.WithoutCancel(c.r.Context())); err != nil {
			c.cfg.Log.WarnContext(c.r.Context(), "ending a kernel that did not start", "kernel", k.id, "err", err)
		}
		return nil, err
	}
	k.become(idle, nil)
	return k, nil
}

func (c *call) deleteKernel(k *kernel) (int, any, error) {
	return http.StatusNoContent, nil, k.end(context.WithoutCancel(c.r.Context()))
}

func (c *call) interruptKernel(k *kernel) (int, any, error) {
	k.interrupt()
	return http.StatusNoContent, nil, nil
}

func (c *call) restartKernel(k *kernel) (int, any, error) {
	if err := k.restart(c.r.Context()); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, k.model(), nil
}
