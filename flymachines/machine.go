package flymachines

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	fly "github.com/superfly/fly-go"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/runner"
)

// The metadata of Machines of this adapter. Keys are what Fly's documentation shows: letters and underscores. The first two are looked
// for; the third holds what a process that did not create the session has to know of it.
const (
	metadataPrefix = "execbroker"
	metadataOwner  = metadataPrefix + "_owner"
	metadataID     = metadataPrefix + "_id"
	metadataSpec   = metadataPrefix + "_spec"
)

// Where files of a Machine are. Both are removed by the runner when it has read them.
const (
	fileDir     = "/etc/execbroker"
	programFile = fileDir + "/runner"
	tokenFile   = fileDir + "/token"
)

// flyDir is where every guest has a socket that speaks for its Machine.
const flyDir = "/.fly"

// maxFiles bounds what goes into the configuration of a Machine in files: Fly does not say how much it takes, and every listing repeats
// it.
const maxFiles = 64 << 10

// python runs the runner and the Python of sessions. The image says where it is.
const python = "python3"

// remembered is the value of metadataSpec.
type remembered struct {
	Created  time.Time         `json:"created"` // by the clock of the creator: all holders say the same
	Template string            `json:"template,omitempty"`
	Limits   executor.Limits   `json:"limits"` // in force
	Labels   map[string]string `json:"labels"` // Create.Labels
	Port     int               `json:"port"`   // of the runner
	Idle     time.Duration     `json:"idle_ns,omitempty"`
	Fetches  bool              `json:"fetches,omitempty"` // packages: it is nobody's session
}

// machineName is the name of the Machine of a session, and the key by which a repeated create finds it.
func machineName(id string) string { return "execbroker-" + id }

// launch describes the Machine of a session, or of one that fetches packages. secret is that of its runner.
func (b *backend) launch(c *driver.Create, image string, fetches bool) (in fly.LaunchMachineInput, secret string, limits executor.Limits, err error) {
	guest, limits, err := b.cfg.guest(&c.Spec)
	if err != nil {
		return in, "", limits, err
	}
	m, err := b.cfg.base()
	if err != nil {
		return in, "", limits, err
	}
	note, err := json.Marshal(remembered{
		Created: time.Now().Round(0), Template: c.Spec.Template, Limits: limits, Labels: c.Labels, Port: b.cfg.port(), Idle: c.Spec.IdleTTL,
		Fetches: fetches,
	})
	if err != nil {
		return in, "", limits, err
	}
	secret = rand.Text()
	program := programFile
	if b.cfg.Runner == RunnerImage {
		program = RunnerPath
	} else {
		m.Files = append(m.Files, newFile(programFile, runner.GuestProgram(), 0o400))
	}
	m.Files = append(m.Files, newFile(tokenFile, []byte(secret), 0o400))
	size := 0
	for _, f := range m.Files {
		if f.RawValue != nil {
			size += len(*f.RawValue)
		}
	}
	if size > maxFiles {
		return in, "", limits, driver.Fail(executor.ErrTooLarge, executor.RanNo,
			fmt.Errorf("the files of a Machine are %d bytes in base64, more than %d: bake the runner into the image (runner: image), or large files", size, maxFiles))
	}
	m.Image, m.Guest = image, guest
	m.Init.Exec = runner.GuestCommand(python, program, tokenFile, b.cfg.port(), b.cfg.timeout())
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
		m.Services = append(m.Services, service(b.cfg.port()))
	}
	return fly.LaunchMachineInput{
		Name: machineName(c.ID), Config: m, SkipSecrets: true, SkipServiceRegistration: len(m.Services) == 0,
	}, secret, limits, nil
}

func newFile(path string, data []byte, mode uint32) *fly.File {
	raw := base64.StdEncoding.EncodeToString(data)
	return &fly.File{GuestPath: path, RawValue: &raw, Mode: mode}
}

// service is how the Fly Proxy reaches the runner. It neither starts nor stops Machines: it does not know what they do.
func service(port int) fly.MachineService {
	off, no, public := fly.MachineAutostopOff, false, 443
	return fly.MachineService{
		Protocol: "tcp", InternalPort: port, Autostop: &off, Autostart: &no,
		Ports: []fly.MachinePort{{Port: &public, Handlers: []string{"tls", "http"}}},
	}
}

// secretOf returns the secret of a runner, which the provider keeps for holders that did not create the session.
func secretOf(m *fly.Machine) string {
	c := m.GetConfig()
	if c == nil {
		return ""
	}
	for _, f := range c.Files {
		if f != nil && f.GuestPath == tokenFile && f.RawValue != nil {
			b, err := base64.StdEncoding.DecodeString(*f.RawValue)
			if err == nil {
				return string(b)
			}
		}
	}
	return ""
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
	r.Port = cmp.Or(r.Port, defaultPort)
	return r, nil
}
