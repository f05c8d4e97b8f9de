package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/modal/modaltest"
)

// emulateModalFlags are the flags of emulate modal.
type emulateModalFlags struct {
	listen, engine string
	images         map[string]string
	maxSandboxes   int
}

func (a *app) emulateModalCommand() *cobra.Command {
	var f emulateModalFlags
	c := &cobra.Command{
		Use:   "modal",
		Short: "The API of Modal for Sandboxes, with containers as Sandboxes",
		Long: `Emulate the API of Modal for apps, images, Sandboxes and the processes in them. Each
Sandbox is a container of a Docker engine, so that a configuration for Modal can be
tried without an account. At the start the command prints the environment variables
that programs need. Sandboxes end with the emulator. If it is killed, the next start
removes what it has left.

Images are those that the engine has: nothing is built or pulled. The token comes from
$` + keysVariable + `, as ID:SECRET. Without it a token is generated and printed.
Here a Sandbox is a container and no more. So only this machine may connect to the
emulator.`,
		Example: `  execbroker emulate modal
  execbroker emulate modal --listen 127.0.0.1:4290 --image docker.io/library/python:3.13-slim=my-image:dev`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.emulateModal(cmd.Context(), f) },
	}
	l := c.Flags()
	l.StringVar(&f.listen, "listen", "127.0.0.1:4290", "`address` and port of the API; port 0 means any free port")
	l.StringVar(&f.engine, "engine", "", "`address` of the Docker engine (default $DOCKER_HOST, or else the socket of the system)")
	l.StringToStringVar(&f.images, "image", nil, "`name=other`: an image that the engine has under another name; may be repeated")
	l.IntVar(&f.maxSandboxes, "max-sandboxes", 50, "the largest number of Sandboxes at the same time")
	return c
}

// emulatingModal is what emulate modal prints when it is ready.
type emulatingModal struct {
	API         string `json:"api"`
	URL         string `json:"url"`
	TokenID     string `json:"token_id,omitempty"`     // set if it was generated
	TokenSecret string `json:"token_secret,omitempty"` // set if it was generated
}

func (a *app) emulateModal(ctx context.Context, f emulateModalFlags) error {
	if err := emulatedHere("listen", f.listen); err != nil {
		return err
	}
	if f.maxSandboxes < 1 {
		return usage("--max-sandboxes: want at least 1")
	}
	cfg := modaltest.Config{Engine: f.engine, Listen: f.listen, Images: f.images, MaxSandboxes: f.maxSandboxes, Log: a.log()}
	keys := a.keyList()
	if len(keys) > 0 {
		var found bool
		if cfg.TokenID, cfg.TokenSecret, found = strings.Cut(keys[0], ":"); !found || len(keys) > 1 {
			return usage("%s: want the one token of the emulator, as ID:SECRET", keysVariable)
		}
	}
	if err := cfg.Check(); err != nil {
		return usage("%w", err)
	}
	open := func(ctx context.Context) (*modaltest.Server, error) { return modaltest.New(ctx, cfg) }
	return runEmulator(ctx, a, "removing Sandboxes", open, func(s *modaltest.Server) error {
		e := emulatingModal{API: "modal", URL: s.URL()}
		id, secret := "...", "..."
		if len(keys) == 0 {
			e.TokenID, e.TokenSecret = s.Token()
			id, secret = e.TokenID, e.TokenSecret
		}
		err := a.answer(e, true, func(w io.Writer) {
			fmt.Fprintf(w, `emulating Modal at %s; programs need these environment variables:

  MODAL_SERVER_URL=%s
  MODAL_TOKEN_ID=%s
  MODAL_TOKEN_SECRET=%s

Sandboxes are containers: run nothing here that you would not run in a container of
your own.
`, e.URL, e.URL, id, secret)
		})
		if err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
}
