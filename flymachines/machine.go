package flymachines

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/runner"
)

// The metadata of Machines of this adapter. Keys are what Fly's documentation shows: letters and underscores. The first two are looked
// for; the third holds what a process that did not create the session has to know of it.
const (
	metadataPrefix = "execbroker"
	metadataOwner  = metadataPrefix + "_owner"
	metadataID     = metadataPrefix + "_id"
	metadataSpec   = metadataPrefix + "_spec"
)

// programFile is where a Machine has the runner that was sent along, which removes it when it has read it.
const programFile = "/etc/execbroker/runner"

// flyDir is where every guest has a socket that speaks for its Machine.
const flyDir = "/.fly"

// maxFiles bounds what goes into the configuration of a Machine in files, in base64: Fly does not say how much it takes, and every listing
// repeats it.
const maxFiles = 64 << 10

// room returns how much of maxFiles is left beside the runner.
func room() int {
	return maxFiles - base64.StdEncoding.EncodedLen(len(runner.GuestProgram()))
}

// python runs the runner and the Python of sessions. The image says where it is.
const python = "python3"

// remembered is the value of metadataSpec.
type remembered struct {
	Note string        `json:"note"` // see runner.Recall
	Port int           `json:"port"` // of the runner
	Idle time.Duration `json:"idle_ns,omitempty"`
}

// machineName is the name of the Machine of a session, and the key by which a repeated create finds it.
func machineName(id string) string { return "execbroker-" + id }

// launch describes the Machine of a session, or of one that fetches packages, and says what is in force. The description has a digest of
// the secret of its runner only.
func (b *backend) launch(c *runner.Start) (in fly.LaunchMachineInput, secret string, err error) {
	image := cmp.Or(c.Base, b.cfg.image(c.Spec.Template))
	guest, limits, err := b.cfg.guest(&c.Spec)
	if err != nil {
		return in, "", err
	}
	c.Info.Limits = limits
	m, err := b.cfg.base()
	if err != nil {
		return in, "", err
	}
	note, err := json.Marshal(remembered{Note: c.Note(), Port: b.cfg.port(), Idle: c.Spec.IdleTTL})
	if err != nil {
		return in, "", err
	}
	if secret, err = b.secretOf(c.ID); err != nil {
		return in, "", err
	}
	program := programFile
	if b.cfg.Runner == RunnerImage || b.cfg.Runner == "" && (sizeOf(m.Files) > room() || b.noFiles.Load()) {
		program = RunnerPath
	} else {
		m.Files = append(m.Files, newFile(programFile, runner.GuestProgram(), 0o400))
	}
	m.Image, m.Guest = image, guest
	m.Init.Exec = runner.GuestCommand(python, program, secret, b.cfg.port(), b.cfg.timeout())
	// The Machine goes with its main process, which has a watchdog. Fly heeds the first only with the second.
	m.AutoDestroy, m.Restart = true, &fly.MachineRestart{Policy: fly.MachineRestartPolicyNo}
	kill, soon := "SIGKILL", fly.Duration{Duration: 5 * time.Second}
	m.StopConfig = &fly.StopConfig{Signal: &kill, Timeout: &soon}
	if m.DNS == nil {
		m.DNS = &fly.DNSConfig{SkipRegistration: true}
	}
	m.Metadata = maps.Clone(m.Metadata)
	if m.Metadata == nil {
		m.Metadata = map[string]string{}
	}
	m.Metadata[metadataOwner], m.Metadata[metadataID], m.Metadata[metadataSpec] = b.env.Owner, c.ID, string(note)
	if b.cfg.Proxy != "" {
		m.Services = append(m.Services, b.cfg.service())
	}
	return fly.LaunchMachineInput{
		Name: machineName(c.ID), Config: m, SkipSecrets: true, SkipServiceRegistration: len(m.Services) == 0,
	}, secret, nil
}

func newFile(path string, data []byte, mode uint32) *fly.File {
	raw := base64.StdEncoding.EncodeToString(data)
	return &fly.File{GuestPath: path, RawValue: &raw, Mode: mode}
}

// fromImage changes the description of a Machine so that its runner comes from the image. It reports whether it did not before.
func fromImage(in *fly.LaunchMachineInput) bool {
	m := *in.Config
	n := len(m.Files)
	m.Files = slices.DeleteFunc(slices.Clone(m.Files), func(f *fly.File) bool { return f.GuestPath == programFile })
	m.Init.Exec = slices.Clone(m.Init.Exec)
	for i, arg := range m.Init.Exec {
		if arg == programFile {
			m.Init.Exec[i] = RunnerPath
		}
	}
	in.Config = &m
	return len(m.Files) < n
}

// sizeOf returns how much files take in the configuration of a Machine.
func sizeOf(files []*fly.File) (n int) {
	for _, f := range files {
		if f != nil && f.RawValue != nil {
			n += len(*f.RawValue)
		}
	}
	return n
}

// minKey is the least that Config.Key may have: who reads a digest can try keys.
const minKey = 32

// secretOf returns the secret of the runner of a session: what the key of this program makes of its ID. So every program with the key can
// attach, and nobody else learns it, whatever Fly shows of the Machine.
func (b *backend) secretOf(id string) (string, error) {
	from, least := b.cfg.Key, minKey
	if from.IsZero() {
		from, least = b.cfg.Token, 1
	}
	key, err := from.Value()
	if err == nil && len(key) < least {
		err = fmt.Errorf("%v has fewer than %d characters", from, least)
	}
	if err != nil {
		return "", driver.Fail(executor.ErrAuth, executor.RanNo, fmt.Errorf("key of secrets: %w", err))
	}
	mac := hmac.New(sha256.New, []byte(key))
	fmt.Fprintf(mac, "execbroker runner\x00%s\x00%s", b.cfg.App, id)
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// specOf returns what is remembered of a session in its Machine.
func specOf(m *fly.Machine) (r remembered, err error) {
	note := m.GetMetadataByKey(metadataSpec)
	if note == "" {
		return r, fmt.Errorf("Machine %s is no session", m.ID)
	}
	if err := json.Unmarshal([]byte(note), &r); err != nil {
		return r, fmt.Errorf("Machine %s: metadata %s: %w", m.ID, metadataSpec, err)
	}
	r.Port, r.Note = cmp.Or(r.Port, defaultPort), cmp.Or(r.Note, note) // the second of an earlier version
	return r, nil
}
