package docker

import (
	"cmp"
	"context"
	"crypto/rand"
	"strings"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/packages"
)

const builderMemory = 512 << 20

// labelBuilder marks a container that fetches packages. Its value is what labels of sessions have in driver.LabelID: it is none.
const labelBuilder = executor.ReservedPrefix + "docker.builder"

// build fetches packages in a container of their own, into a file.
func (b *backend) build(ctx context.Context, f *packages.Fetch, file string) (err error) {
	e := b.engine
	facts, err := e.facts(ctx)
	if err != nil {
		return err
	}
	img, err := e.inspect(ctx, f.Base, facts)
	if err != nil {
		return e.fail(ctx, err)
	}
	x := b.builder(f, img, facts)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.timeout)
		defer cancel()
		if derr := e.undo(ctx, x.id, err); derr != nil {
			b.env.Logger().Warn("a container that fetched packages may be left; it ends by itself", "container", containerName(x.id), "error", derr)
		}
	}()
	o := x.options(facts)
	o.Config.StdinOnce = true // when this process dies its input ends, and it ends itself
	actx, stop := e.answer(ctx)
	defer stop()
	_, conn, err := b.launch(actx, o, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	where := packages.Builder{UID: x.uid, Dir: executor.Workdir}
	return b.installer.Build(ctx, f, where, packages.Process{ReadWriteCloser: conn, Said: conn.stderr}, file)
}

// builder returns the container that fetches f. It has the protections of sessions.
func (b *backend) builder(f *packages.Fetch, img image, facts *facts) *box {
	id := strings.ToLower(rand.Text())
	box := &box{
		id: id, image: img, command: f.Command(python), runtime: b.cfg.Runtime,
		network: cmp.Or(b.cfg.Packages.Network, "bridge"),
		want: executor.Limits{
			CPUs: min(2, float64(facts.info.NCPU)), MemoryBytes: builderMemory, DiskBytes: 4*f.Max + 64<<20, Processes: defaultProcesses,
		},
		uid: facts.userID(id), mapped: facts.mapped(),
		labels: map[string]string{driver.LabelOwner: b.env.Owner, driver.LabelInstance: b.env.Instance, labelBuilder: id},
	}
	if f.Offline {
		box.network = string(executor.NetworkNone)
	}
	return box
}
