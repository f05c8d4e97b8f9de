package docker

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/execbroker/execbroker/internal/seccomp"
)

// Containers get the filter of package seccomp instead of the engine's. A runtime ignores names
// that its architecture does not have.

// profile is the form of the engine's API.
type profile struct {
	DefaultAction string        `json:"defaultAction"`
	ArchMap       []profileArch `json:"archMap"`
	Syscalls      []profileRule `json:"syscalls"`
}

// profileArch names an architecture without the others that its kernels execute.
type profileArch struct {
	Architecture     string   `json:"architecture"`
	SubArchitectures []string `json:"subArchitectures"`
}

// profileRule applies if all Args hold.
type profileRule struct {
	Names    []string       `json:"names"`
	Action   string         `json:"action"`
	ErrnoRet uint           `json:"errnoRet,omitempty"`
	Args     []profileArg   `json:"args"`
	Includes map[string]any `json:"includes"`
	Excludes map[string]any `json:"excludes"`
}

// profileArg compares the bits in Value of an argument with ValueTwo.
type profileArg struct {
	Index    uint   `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo"`
	Op       string `json:"op"`
}

// seccompProfile returns the filter as the engine's API takes it.
func seccompProfile(of seccomp.Profile) string {
	p := profile{DefaultAction: "SCMP_ACT_ERRNO"}
	for _, a := range strings.Fields("X86_64 AARCH64 ARM PPC64LE RISCV64 S390X") {
		p.ArchMap = append(p.ArchMap, profileArch{"SCMP_ARCH_" + a, []string{}})
	}
	add := func(names []string, errno uint, args ...profileArg) *profileRule {
		action := "SCMP_ACT_ALLOW"
		if errno != 0 {
			action = "SCMP_ACT_ERRNO"
		}
		p.Syscalls = append(p.Syscalls, profileRule{Names: names, Action: action, ErrnoRet: errno, Args: args})
		return &p.Syscalls[len(p.Syscalls)-1]
	}
	add(of.Calls(), 0)
	add(of.Unknown(), seccomp.ENOSYS)
	for _, r := range of.Rules() {
		var args []profileArg
		for _, a := range r.Args {
			args = append(args, profileArg{a.Index, a.Mask, a.Value, "SCMP_CMP_MASKED_EQ"})
		}
		// On one architecture the flags of clone are its second argument, and those of mmap are in
		// memory, which no filter sees.
		other := map[string]any{"arches": []string{"s390x"}}
		switch {
		case slices.Contains(r.Calls, "clone"):
			add(r.Calls, r.Errno, args...).Excludes = other
			args = slices.Clone(args)
			args[0].Index = 1
			add(r.Calls, r.Errno, args...).Includes = other
		case slices.Contains(r.Calls, "mmap"):
			add(r.Calls, r.Errno, args...).Excludes = other
			add(r.Calls, r.Errno).Includes = other
		default:
			add(r.Calls, r.Errno, args...)
		}
	}
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // it has neither cycles nor functions
	}
	return string(text)
}

// The profiles of all containers.
var (
	strictProfile   = sync.OnceValue(func() string { return seccompProfile(seccomp.Profile{}) })
	filteredProfile = sync.OnceValue(func() string { return seccompProfile(seccomp.Profile{CodeFilters: true}) })
)

// profile returns what containers get.
func (c *Config) profile() string {
	if c.AllowCodeFilters {
		return filteredProfile()
	}
	return strictProfile()
}
