package flytest

import "encoding/json"

// Types of the API, named as Fly names them. They are written here anew, and not taken from Fly's
// client, so that a mistake in how that client encodes something shows.

// machineJSON is a Machine as clients see it.
type machineJSON struct {
	ID               string                     `json:"id"`
	Name             string                     `json:"name"`
	State            string                     `json:"state"`
	Region           string                     `json:"region"`
	ImageRef         imageRef                   `json:"image_ref"`
	InstanceID       string                     `json:"instance_id"`
	PrivateIP        string                     `json:"private_ip"`
	CreatedAt        string                     `json:"created_at"`
	UpdatedAt        string                     `json:"updated_at"`
	Config           map[string]json.RawMessage `json:"config"`
	IncompleteConfig map[string]json.RawMessage `json:"incomplete_config,omitempty"`
	Events           []event                    `json:"events"`
	Checks           []json.RawMessage          `json:"checks,omitempty"`
	Nonce            string                     `json:"nonce,omitempty"`
	HostStatus       string                     `json:"host_status"`
	Cordoned         bool                       `json:"cordoned"`
}

type imageRef struct {
	Registry   string            `json:"registry"`
	Repository string            `json:"repository"`
	Tag        string            `json:"tag,omitempty"`
	Digest     string            `json:"digest,omitempty"`
	Labels     map[string]string `json:"labels"`
}

type event struct {
	ID        string        `json:"id"`
	Type      string        `json:"type"`
	Status    string        `json:"status"`
	Request   *eventRequest `json:"request,omitempty"`
	Source    string        `json:"source"`
	Timestamp int64         `json:"timestamp"` // milliseconds
}

type eventRequest struct {
	ExitEvent    *exitEvent `json:"exit_event,omitempty"`
	RestartCount int        `json:"restart_count,omitempty"`
}

type exitEvent struct {
	RequestedStop bool   `json:"requested_stop"`
	Restarting    bool   `json:"restarting"`
	GuestExitCode int    `json:"guest_exit_code"`
	GuestSignal   int    `json:"guest_signal"` // -1: none
	GuestError    string `json:"guest_error"`
	ExitCode      int    `json:"exit_code"`
	Signal        int    `json:"signal"` // -1: none
	Error         string `json:"error"`
	OOMKilled     bool   `json:"oom_killed"`
	ExitedAt      string `json:"exited_at"`
}

// createInput is the body of a create and of an update.
type createInput struct {
	Config                  map[string]json.RawMessage `json:"config"`
	Name                    string                     `json:"name"`
	Region                  string                     `json:"region"`
	LeaseTTL                int                        `json:"lease_ttl"` // seconds
	SkipLaunch              bool                       `json:"skip_launch"`
	SkipServiceRegistration bool                       `json:"skip_service_registration"`
	SkipSecrets             bool                       `json:"skip_secrets"`
	MinSecretsVersion       *uint64                    `json:"min_secrets_version"`
	LSVD                    bool                       `json:"lsvd"`
	CurrentVersion          string                     `json:"current_version"` // of an update
}

// machineConfig is what of a Machine's configuration the emulator acts on.
type machineConfig struct {
	Image       string            `json:"image"`
	Env         map[string]string `json:"env"`
	Init        initConfig        `json:"init"`
	Guest       guest             `json:"guest"`
	Size        string            `json:"size"` // deprecated in favour of guest
	Files       []file            `json:"files"`
	AutoDestroy bool              `json:"auto_destroy"`
	Restart     restartConfig     `json:"restart"`
	StopConfig  stopConfig        `json:"stop_config"`
	Services    []service         `json:"services"`
	DNS         dnsConfig         `json:"dns"`
	Metadata    map[string]string `json:"metadata"`
}

type initConfig struct {
	Exec       []string `json:"exec"`
	Entrypoint []string `json:"entrypoint"`
	Cmd        []string `json:"cmd"`
	TTY        bool     `json:"tty"`
	SwapSizeMB int64    `json:"swap_size_mb"`
	KernelArgs []string `json:"kernel_args"`
}

type guest struct {
	CPUKind          string   `json:"cpu_kind"`
	CPUs             int      `json:"cpus"`
	MemoryMB         int64    `json:"memory_mb"`
	MaxMemoryMB      int64    `json:"max_memory_mb"`
	GPUKind          string   `json:"gpu_kind"`
	GPUs             int      `json:"gpus"`
	HostDedicationID string   `json:"host_dedication_id"`
	KernelArgs       []string `json:"kernel_args"`
	PersistRootfs    string   `json:"persist_rootfs"`
}

type file struct {
	GuestPath   string  `json:"guest_path"`
	RawValue    *string `json:"raw_value"` // base64
	SecretName  *string `json:"secret_name"`
	ImageConfig *string `json:"image_config"`
	Mode        int64   `json:"mode"`
}

type restartConfig struct {
	Policy      string  `json:"policy"`
	MaxRetries  int     `json:"max_retries"`
	GPUBidPrice float64 `json:"gpu_bid_price"`
}

type stopConfig struct {
	Timeout duration `json:"timeout"`
	Signal  string   `json:"signal"`
}

type service struct {
	Protocol     string        `json:"protocol"`
	InternalPort int           `json:"internal_port"`
	Ports        []servicePort `json:"ports"`
}

type servicePort struct {
	Port     int      `json:"port"`
	Handlers []string `json:"handlers"`
}

type dnsConfig struct {
	Nameservers []string `json:"nameservers"`
	Searches    []string `json:"searches"`
	Hostname    string   `json:"hostname"`
}
