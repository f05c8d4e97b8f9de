package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/executor/sessions"
)

func (a *app) sessionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "List and remove running sandboxes",
		Long: `List and remove the sandboxes of one owner, whichever program created them.

Backends differ: a sandbox of Pyodide lives in the program that created it
and is not listed here. --owner sets the owner. A program that uses the
library has its own owner.`,
	}
	cmd.AddCommand(a.sessionListCommand(), a.sessionKillCommand(), a.sessionReapCommand())
	return cmd
}

// fleet is the set of all configured backends, or the one that --backend names.
type fleet struct {
	*backends.Broker
	sessions backends.Sessions // from the configuration
	names    []string
	p        *progress
}

func (a *app) openFleet(ctx context.Context) (*fleet, error) {
	c, err := a.configuration()
	if err != nil {
		return nil, err
	}
	bare := withoutRoutes(c)
	bare.Guard = backends.Guard{} // nothing is created
	b, err := a.openBroker(ctx, bare, backends.WithoutPools())
	if err != nil {
		return nil, err
	}
	return &fleet{b, c.Sessions, slices.Sorted(maps.Keys(c.Backends)), newProgress(a.err)}, nil
}

// withFleet opens the backends for a command, and closes them afterwards.
func (a *app) withFleet(ctx context.Context, command func(*fleet) error) error {
	f, err := a.openFleet(ctx)
	if err != nil {
		return err
	}
	defer a.closing(f.p, "closing", f.Close)
	return command(f)
}

// list returns the sandboxes, oldest first, and the errors of backends that did not answer.
// Backends that cannot list, because their sandboxes end with their program, are only mentioned in
// a note.
func (f *fleet) list(ctx context.Context, labels map[string]string) (ls []executor.SessionInfo, err error) {
	ctx, end := f.p.begin(ctx, "asking for sandboxes")
	defer end()
	var errs []error
	var cannot []string
	for _, name := range f.names {
		x, _ := f.Backend(name)
		if !x.Info().Capabilities.Has(executor.FeatureList) && len(f.names) > 1 {
			cannot = append(cannot, name)
			continue
		}
		for info, err := range x.Sessions(ctx, labels) {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			ls = append(ls, info)
		}
	}
	if f.p.w != nil && len(cannot) > 0 {
		f.p.pause()
		fmt.Fprintf(f.p.w, "execbroker: these backends cannot list sandboxes: %s\n", strings.Join(cannot, ", "))
	}
	slices.SortStableFunc(ls, func(a, b executor.SessionInfo) int { return a.Created.Compare(b.Created) })
	return ls, errors.Join(errs...)
}

func (a *app) sessionListCommand() *cobra.Command {
	var labels map[string]string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the sandboxes of the owner",
		Long: `List the sandboxes of the owner, oldest first. If the configuration has a session
store that processes share, the list says which subject and which conversation
has each. A sandbox without a conversation is of a session that only its
program knows, or warm, or left behind: see "session reap".`,
		Example: `  execbroker session ls --config app.yaml --owner shop-prod
  execbroker session ls --config app.yaml --label conversation=42 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.sessionList(cmd.Context(), labels) },
	}
	cmd.Flags().StringToStringVar(&labels, "label", nil, "only those with this label; may be repeated (`KEY=VALUE`)")
	return cmd
}

func (a *app) sessionList(ctx context.Context, labels map[string]string) error {
	return a.withFleet(ctx, func(f *fleet) error {
		ls, err := f.list(ctx, labels)
		if !f.sessions.Shared() {
			return a.listed(ctx, ls, nil, err)
		}
		used, failed := f.holders(ctx)
		return a.listed(ctx, ls, used, errors.Join(err, failed))
	})
}

// holder is who has a sandbox, as the session store says.
type holder struct {
	Subject      string `json:"subject,omitempty"`
	Conversation string `json:"conversation,omitempty"`
}

// place is where a sandbox is: the backend, and its name there.
type place struct{ backend, session string }

// holders returns who has which sandbox by the records of the session store, and the errors of
// those that cannot be read.
func (f *fleet) holders(ctx context.Context) (used map[place]holder, err error) {
	used = map[place]holder{}
	err = f.withRecords(ctx, func(m *sessions.Manager) error {
		var errs []error
		for r, err := range m.Records(ctx, "") {
			errs = append(errs, err)
			if r.Handle.Session != "" {
				used[place{r.Handle.Backend, r.Handle.Session}] = holder{r.Subject, r.Key}
			}
		}
		return errors.Join(errs...)
	})
	return used, err
}

// withRecords calls do with a manager over the session store of the configuration.
func (f *fleet) withRecords(ctx context.Context, do func(*sessions.Manager) error) error {
	store, closer, err := f.sessions.OpenStore(ctx)
	if err != nil {
		return err
	}
	defer closer.Close()
	m, err := sessions.New(f.Broker, store, sessions.Options{Instance: "cli." + strings.ToLower(rand.Text())})
	if err != nil {
		return err
	}
	defer m.Close(context.WithoutCancel(ctx))
	return do(m)
}

// sessionsDocument is the JSON output of the commands about sessions.
type sessionsDocument struct {
	Sessions []listedSession   `json:"sessions,omitzero"`
	Removed  []executor.Handle `json:"removed,omitzero"`
	Error    *errorReport      `json:"error,omitempty"`
}

// listedSession is a sandbox in JSON, with the columns of the table and all other details.
type listedSession struct {
	Backend    string  `json:"backend"`
	Session    string  `json:"session"`
	AgeSeconds float64 `json:"age_seconds"`
	holder
	executor.SessionInfo
}

func newListedSession(s executor.SessionInfo, of holder) listedSession {
	return listedSession{s.Handle.Backend, s.Handle.Session, time.Since(s.Created).Round(time.Millisecond).Seconds(), of, s}
}

// listed prints sandboxes and returns the error of listing them. used is nil if nothing is known of
// conversations.
func (a *app) listed(ctx context.Context, ls []executor.SessionInfo, used map[place]holder, err error) error {
	if a.json {
		doc := sessionsDocument{Sessions: []listedSession{}}
		for _, s := range ls {
			doc.Sessions = append(doc.Sessions, newListedSession(s, used[placeOf(s)]))
		}
		return a.printDocument(ctx, &doc, &doc.Error, err)
	}
	if len(ls) > 0 {
		return errors.Join(printSessions(a.out, ls, used), err)
	}
	if err == nil {
		fmt.Fprintf(a.err, "execbroker: no sandboxes of %s\n", plain(a.env().Owner))
	}
	return err
}

func placeOf(s executor.SessionInfo) place { return place{s.Handle.Backend, s.Handle.Session} }

func printSessions(w io.Writer, ls []executor.SessionInfo, used map[place]holder) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "BACKEND\tSESSION\tSTATE\tAGE\tEXPIRES\t"
	if used != nil {
		head += "SUBJECT\tCONVERSATION\t"
	}
	fmt.Fprintln(t, head+"TEMPLATE\tLABELS")
	for _, s := range ls {
		expires := ""
		if !s.Expires.IsZero() {
			expires = "in " + round(time.Until(s.Expires))
		}
		var labels []string
		for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
			labels = append(labels, plain(k)+"="+plain(s.Labels[k]))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t", plain(s.Handle.Backend), plain(s.Handle.Session), plain(string(s.State)),
			round(time.Since(s.Created)), expires)
		if used != nil {
			of := used[placeOf(s)]
			fmt.Fprintf(t, "%s\t%s\t", cmp.Or(plain(of.Subject), "-"), cmp.Or(plain(of.Conversation), "-"))
		}
		fmt.Fprintf(t, "%s\t%s\n", plain(s.Template), strings.Join(labels, " "))
	}
	return t.Flush()
}

// round formats a duration with its significant units.
func round(d time.Duration) string {
	switch {
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// printSession describes one sandbox.
func printSession(w io.Writer, x executor.Info, s executor.SessionInfo) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	c := s.Capabilities
	row("backend", "%s, of type %s, isolation %s", plain(x.Name), plain(x.Type), plain(string(c.Isolation)))
	row("session", "%s, %s for %s", plain(s.Handle.Session), plain(string(s.State)), round(time.Since(s.Created)))
	if !s.Expires.IsZero() {
		row("expires", "in %s", round(time.Until(s.Expires)))
	}
	features := slices.Clone(c.Features)
	for _, r := range c.Languages {
		row("language", "%s", plain(strings.TrimSpace(string(r.Language)+" "+r.Version)))
		features = append(features, r.Features...)
	}
	if s.Limits.MemoryBytes > 0 {
		row("memory", "%s", size(s.Limits.MemoryBytes))
	}
	if s.Limits.DiskBytes > 0 {
		row("disk", "%s", size(s.Limits.DiskBytes))
	}
	words := make([]string, len(features))
	for i, f := range features {
		words[i] = plain(string(f))
	}
	slices.Sort(words)
	row("features", "%s", strings.Join(slices.Compact(words), " "))
	return t.Flush()
}

func (a *app) sessionKillCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kill SESSION...",
		Short: "Remove sandboxes and everything that runs in them",
		Long: `Remove sandboxes and everything that runs in them. SESSION is an ID from "session ls",
the beginning of one if it is unique, or a handle.`,
		Example: "  execbroker session kill --config app.yaml 6kx3",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.sessionKill(cmd.Context(), args) },
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var ids []string
			if f, err := a.openFleet(cmd.Context()); err == nil {
				f.p = &progress{}
				ls, _ := f.list(cmd.Context(), nil) // an incomplete list is still useful
				for _, s := range ls {
					ids = append(ids, s.Handle.Session)
				}
				f.Close()
			}
			return ids, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

func (a *app) sessionKill(ctx context.Context, names []string) error {
	return a.withFleet(ctx, func(f *fleet) error {
		var ls []executor.SessionInfo
		var listed error
		if slices.ContainsFunc(names, func(n string) bool { _, err := executor.ParseHandle(n); return err != nil }) {
			ls, listed = f.list(ctx, nil)
		}
		var handles []executor.Handle
		for _, name := range names {
			h, err := resolve(name, ls)
			if err != nil {
				return errors.Join(err, listed)
			}
			handles = append(handles, h)
		}
		return a.destroy(ctx, f, handles)
	})
}

// resolve finds the sandbox that an argument means.
func resolve(name string, ls []executor.SessionInfo) (executor.Handle, error) {
	if h, err := executor.ParseHandle(name); err == nil {
		return h, nil
	}
	var found []executor.Handle
	var ids []string
	for _, s := range ls {
		if s.Handle.Session == name {
			return s.Handle, nil
		}
		if strings.HasPrefix(s.Handle.Session, name) {
			found = append(found, s.Handle)
		}
		ids = append(ids, s.Handle.Session)
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return executor.Handle{}, &usageError{err: driver.Unknown("session", name, ids)}
	}
	return executor.Handle{}, usage("%s: %d sessions begin like that", plain(name), len(found))
}

// destroy removes sandboxes and prints which. It continues after a failure. errs are earlier
// errors.
func (a *app) destroy(ctx context.Context, f *fleet, handles []executor.Handle, errs ...error) error {
	gone := []executor.Handle{}
	for _, h := range handles {
		dctx, end := f.p.begin(ctx, "removing "+h.Session)
		err := f.Destroy(dctx, h)
		end()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		gone = append(gone, h)
		if !a.json {
			if _, err := fmt.Fprintf(a.out, "removed %s\n", plain(h.Session)); err != nil {
				return err
			}
		}
	}
	err := errors.Join(errs...)
	if a.json {
		doc := sessionsDocument{Removed: gone}
		return a.printDocument(ctx, &doc, &doc.Error, err)
	}
	return err
}

func (a *app) sessionReapCommand() *cobra.Command {
	var age time.Duration
	var dry, force bool
	cmd := &cobra.Command{
		Use:   "reap --older-than TIME",
		Short: "Remove the old sandboxes of the owner",
		Long: `Remove the sandboxes of the owner that are older than a given time.

A sandbox that has received something from a program within the last minute is
in use and is spared. On a terminal you are asked first. On E2B, and where code has
the user of its supervisor, nobody can tell, and the age alone decides.

If the configuration has a session store that processes share, sandboxes in its
records and those of living processes are spared, too.`,
		Example: `  execbroker session reap --config app.yaml --owner shop-test --older-than 24h --dry-run
  execbroker session reap --config app.yaml --owner shop-test --older-than 24h`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.sessionReap(cmd.Context(), age, dry, force) },
	}
	cmd.Flags().DurationVar(&age, "older-than", 0, "remove sandboxes that were created longer ago than this `time`")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only list what would be removed")
	cmd.Flags().BoolVar(&force, "force", false, "remove sandboxes in use, too, without asking; not with a session store")
	return cmd
}

func (a *app) sessionReap(ctx context.Context, age time.Duration, dry, force bool) error {
	if age <= 0 {
		return usage("set the minimum age of the sandboxes to remove with --older-than, such as 24h")
	}
	return a.withFleet(ctx, func(f *fleet) error {
		switch {
		case f.sessions.Shared() && force:
			return usage("--force: the configuration has a session store, which knows the conversations; remove a sandbox in use with \"session kill\"")
		case f.sessions.Shared():
			return a.sessionReapByStore(ctx, f, age, dry)
		}
		ls, err := f.list(ctx, nil)
		ls = slices.DeleteFunc(ls, func(s executor.SessionInfo) bool { return time.Since(s.Created) < age })
		if !force {
			ls, err = a.spare(ctx, f, ls, dry, err)
		}
		return a.reap(ctx, f, ls, dry, err)
	})
}

// spare leaves out the sandboxes that are in use or do not answer, unless the user wants those in
// use to be removed. It adds its errors to err.
func (a *app) spare(ctx context.Context, f *fleet, ls []executor.SessionInfo, dry bool, err error) ([]executor.SessionInfo, error) {
	errs := []error{err}
	var free, used []executor.SessionInfo
	for _, s := range ls {
		sctx, end := f.p.begin(ctx, "asking for the holder of "+s.Handle.Session)
		in, err := sessions.InUse(sctx, f.Broker, s)
		end()
		switch {
		case err != nil:
			errs = append(errs, err)
		case in:
			used = append(used, s)
		default:
			free = append(free, s)
		}
	}
	if len(used) == 0 {
		return free, errors.Join(errs...)
	}
	ids := make([]string, len(used))
	for i, s := range used {
		ids[i] = plain(s.Handle.Session)
	}
	f.p.pause()
	fmt.Fprintf(a.err, "execbroker: in use within the last minute: %s\n", strings.Join(ids, ", "))
	if !dry && !a.json && isTerminal(a.in) && isTerminal(a.err) {
		fmt.Fprint(a.err, "execbroker: remove these, too? [y/N] ")
		in := interruptible(a.in)
		defer context.AfterFunc(ctx, func() { in.Close() })()
		answer, _ := bufio.NewReader(in).ReadString('\n') // without an answer they are spared
		if strings.EqualFold(strings.TrimSpace(answer), "y") {
			return append(free, used...), errors.Join(errs...)
		}
	}
	fmt.Fprintln(a.err, "execbroker: spared them; --force removes them, too")
	return free, errors.Join(errs...)
}

// reap removes sandboxes, or lists them in a dry run. The error is that of looking for them.
func (a *app) reap(ctx context.Context, f *fleet, ls []executor.SessionInfo, dry bool, err error) error {
	if len(ls) == 0 && err == nil && !a.json {
		fmt.Fprintln(a.err, "execbroker: nothing to remove")
		return nil
	}
	if dry {
		return a.listed(ctx, ls, nil, err)
	}
	handles := make([]executor.Handle, len(ls))
	for i, s := range ls {
		handles[i] = s.Handle
	}
	return a.destroy(ctx, f, handles, err)
}

// sessionReapByStore removes sandboxes that the session store of the configuration does not name.
func (a *app) sessionReapByStore(ctx context.Context, f *fleet, age time.Duration, dry bool) error {
	var old []executor.SessionInfo
	err := f.withRecords(ctx, func(m *sessions.Manager) error {
		var errs []error
		for i, err := range m.Reap(ctx, age, true) {
			switch {
			case errors.Is(err, executor.ErrUnsupported): // sandboxes of a backend that cannot list end with their program
			case err != nil:
				errs = append(errs, err)
			default:
				old = append(old, i)
			}
		}
		return errors.Join(errs...)
	})
	return a.reap(ctx, f, old, dry, err)
}
