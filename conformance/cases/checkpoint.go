package cases

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/checkpoint"
)

// checkpointCase makes a case about package checkpoint in Python. Its negative form is that without
// files no checkpoint can be made.
func checkpointCase(id, doc string, programs []string, positive func(t *T, s executor.Session)) Case {
	return Case{
		ID: "checkpoint/" + id, Only: executor.Python, Feature: executor.FeatureFiles, Needs: []executor.Feature{executor.FeatureState},
		Doc: doc, Programs: programs, Positive: fresh(positive), Negative: noCheckpoint,
	}
}

// noCheckpoint checks that a session without files refuses.
func noCheckpoint(t *T) {
	var archive bytes.Buffer
	_, err := checkpoint.Make(t.Context(), t.Shared(), &archive, checkpoint.Options{})
	t.Refused("checkpoint", err, executor.FeatureFiles)
	equal(t, "bytes of an archive that is refused", archive.Len(), 0)
}

// checkpointCases are about conversations that move from one session to another.
func checkpointCases() []Case {
	return []Case{
		checkpointCase("values", "Variables, functions, classes and imports are the same after a checkpoint and after one of what was restored, with what they share and with cycles, and the session that it was made of goes on.",
			[]string{"carry", "carried"}, func(t *T, s executor.Session) {
				t.ok(s, t.Program("carry"))
				want := t.stdout(s, t.Program("carried"))
				if want == "" || strings.Contains(want, "False") {
					t.Fatalf("before the checkpoint: got %s", excerpt(want))
				}
				next := t.moved(s)
				t.says(next, t.Program("carried"), want)
				t.says(s, t.Program("carried"), want)
				t.says(t.moved(next), t.Program("carried"), want)
			}),
		checkpointCase("files", "Files, directories and links below the working directory are the same after a checkpoint, with their modes.",
			[]string{"symlink", "read-file", "file-mode"}, func(t *T, s executor.Session) {
				blob := strings.Repeat("0123456789abcdef\x00\xff\n", 10_000)
				t.must(s.Files().Write(t.Context(), "dir/run.sh", strings.NewReader("echo"), 0o750), "write")
				t.put(s.Files(), "blob.bin", blob)
				t.put(s.Files(), "dir/empty", "")
				t.must(s.Files().Mkdir(t.Context(), "hollow"), "mkdir")
				t.ok(s, t.Program("symlink", "target", "dir/run.sh", "link", "link"))
				next := t.moved(s)
				t.holds(next.Files(), "blob.bin", blob)
				t.holds(next.Files(), "dir/empty", "")
				t.says(next, t.Program("read-file", "name", "link"), "echo")
				t.says(next, t.Program("file-mode", "name", "dir/run.sh"), "750")
				i, err := next.Files().Stat(t.Context(), "hollow")
				t.must(err, "stat of a directory")
				equal(t, "a directory", i.Mode.IsDir(), true)
				t.noCheckpointFiles(s)
				t.noCheckpointFiles(next)
			}),
		checkpointCase("omitted", "What cannot be carried is listed by name with its reason, or refused if all is wanted, and the conversation is as before.",
			[]string{"carry-not", "remember", "recall"}, func(t *T, s executor.Session) {
				t.ok(s, t.Program("remember", "value", kept))
				t.ok(s, t.Program("carry-not"))
				var archive bytes.Buffer
				made, err := checkpoint.Make(t.Context(), s, &archive, checkpoint.Options{})
				t.must(err, "checkpoint")
				for _, name := range []string{"stream", "lock", "closure", "generator"} {
					if !slices.ContainsFunc(made.Omitted, func(o checkpoint.Omission) bool { return o.Name == name && o.Reason != "" }) {
						t.Errorf("%s is not listed: %+v", name, made.Omitted)
					}
				}
				archive.Reset()
				_, err = checkpoint.Make(t.Context(), s, &archive, checkpoint.Options{AllOrNothing: true})
				t.is("a checkpoint of all", err, executor.ErrUnsupported, executor.RanYes)
				all := (*checkpoint.OmittedError)(nil)
				if !errors.As(err, &all) || len(all.Omitted) != len(made.Omitted) || archive.Len() > 0 {
					t.Errorf("a checkpoint of all: got %v and %d bytes", err, archive.Len())
				}
				t.says(s, t.Program("recall"), kept)
			}),
		checkpointCase("stopped", "A value whose pickling does not end stops the checkpoint at the wall time, and nothing is written.",
			[]string{"carry-hang", "remember", "recall"}, func(t *T, s executor.Session) {
				t.ok(s, t.Program("remember", "value", kept))
				t.ok(s, t.Program("carry-hang"))
				start := time.Now()
				var archive bytes.Buffer
				_, err := checkpoint.Make(t.Context(), s, &archive, checkpoint.Options{Limits: executor.RunLimits{WallTime: time.Second}})
				t.prompt("stopping the checkpoint", start, 2*time.Second)
				t.is("a checkpoint that does not end", err, executor.ErrInvalid, executor.RanYes)
				exit := (*executor.ExitError)(nil)
				if !errors.As(err, &exit) || archive.Len() > 0 {
					t.Fatalf("a checkpoint that does not end: got %v and %d bytes", err, archive.Len())
				}
				t.ended(exit.Result, executor.StatusTimedOut, executor.ReasonWallTime)
				if t.Has(executor.FeatureInterrupt) {
					t.says(s, t.Program("recall"), kept)
				}
				t.noCheckpointFiles(s)
			}),
		checkpointCase("sealed", "A sealed archive is opened for its owner, subject and conversation only, not for a wider network or a weaker isolation, and an archive of unknown origin is restored only where there is neither a network nor a secret.",
			[]string{"remember", "recall"}, func(t *T, s executor.Session) {
				t.ok(s, t.Program("remember", "value", kept))
				key := bytes.Repeat([]byte{7}, checkpoint.MinKey)
				was := checkpoint.Binding{
					Owner: "app", Subject: "ann", Conversation: "c", Language: executor.Python, Isolation: s.Info().Capabilities.Isolation,
				}
				archive := t.checkpoint(s)
				sealed, err := checkpoint.Seal(key, was, archive)
				t.must(err, "seal")
				for what, edit := range map[string]func(*checkpoint.Binding){
					"owner":        func(b *checkpoint.Binding) { b.Owner = "other" },
					"subject":      func(b *checkpoint.Binding) { b.Subject = "bob" },
					"conversation": func(b *checkpoint.Binding) { b.Conversation = "d" },
					"network":      func(b *checkpoint.Binding) { b.Network.Mode = executor.NetworkFull },
					"isolation":    func(b *checkpoint.Binding) { b.Isolation = "" },
				} {
					now := was
					edit(&now)
					_, err := checkpoint.Open(key, now, sealed)
					t.isNo("opening for another "+what, err, executor.ErrDenied)
				}
				opened, err := checkpoint.Open(key, was, sealed)
				t.must(err, "open")
				next := t.Session()
				for what, spec := range map[string]*executor.Spec{
					"of which nobody says what it is": nil,
					"with a network":                  {Network: executor.NetworkPolicy{Mode: executor.NetworkFull}},
					"with a secret":                   {Env: map[string]string{"TOKEN": "secret"}},
				} {
					_, err := checkpoint.Restore(t.Context(), next, bytes.NewReader(opened), checkpoint.Options{Spec: spec})
					t.isNo("a restore of unknown origin into a session "+what, err, executor.ErrDenied)
				}
				t.says(next, t.Program("recall"), "absent")
				_, err = checkpoint.Restore(t.Context(), next, bytes.NewReader(opened), checkpoint.Options{Spec: &executor.Spec{}})
				t.must(err, "restore of unknown origin where it can do no harm")
				t.says(next, t.Program("recall"), kept)
			}),
		{
			ID: "checkpoint/script", Only: executor.JavaScript, Feature: executor.FeatureFiles, Needs: []executor.Feature{executor.FeatureState},
			Doc:      "Variables of JavaScript are the same after a checkpoint, with what they share and with cycles, and so are files; a function with variables of one around it is listed.",
			Programs: []string{"carry", "carried", "carry-not"}, Negative: noCheckpoint,
			Positive: fresh(func(t *T, s executor.Session) {
				t.ok(s, t.Program("carry"))
				t.put(s.Files(), "dir/a.txt", kept)
				want := t.stdout(s, t.Program("carried"))
				if want == "" || strings.Contains(want, "false") {
					t.Fatalf("before the checkpoint: got %s", excerpt(want))
				}
				next := t.moved(s)
				t.says(next, t.Program("carried"), want)
				t.says(s, t.Program("carried"), want)
				t.holds(next.Files(), "dir/a.txt", kept)
				t.ok(next, t.Program("carry-not"))
				var archive bytes.Buffer
				made, err := checkpoint.Make(t.Context(), next, &archive, checkpoint.Options{})
				t.must(err, "checkpoint")
				if !slices.ContainsFunc(made.Omitted, func(o checkpoint.Omission) bool { return o.Name == "closure" && o.Reason != "" }) {
					t.Errorf("closure is not listed: %+v", made.Omitted)
				}
				t.noCheckpointFiles(next)
			}),
		},
	}
}

// checkpoint returns an archive of a session, from which nothing may be missing.
func (t *T) checkpoint(s executor.Session) []byte {
	var archive bytes.Buffer
	made, err := checkpoint.Make(t.Context(), s, &archive, checkpoint.Options{})
	t.must(err, "checkpoint")
	noneOf(t, "omitted from the archive", made.Omitted)
	return archive.Bytes()
}

// moved returns another session with what a session has.
func (t *T) moved(s executor.Session) executor.Session {
	archive := t.checkpoint(s)
	next := t.Session()
	restored, err := checkpoint.Restore(t.Context(), next, bytes.NewReader(archive), checkpoint.Options{Known: true, AllOrNothing: true})
	t.must(err, "restore")
	noneOf(t, "omitted from what was restored", restored.Omitted)
	return next
}

// noCheckpointFiles checks that nothing is left of the files that only exist during a call.
func (t *T) noCheckpointFiles(s executor.Session) {
	for i, err := range s.Files().List(t.Context(), ".") {
		t.must(err, "list")
		if strings.HasPrefix(i.Name, ".execbroker-") {
			t.Errorf("a file of the checkpoint is left: %s", i.Name)
		}
	}
}
