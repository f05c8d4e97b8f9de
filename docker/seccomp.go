package docker

import (
	"encoding/json"
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

// profileRule holds if all Args do.
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
var seccompProfile = sync.OnceValue(func() string {
	p := profile{DefaultAction: "SCMP_ACT_ERRNO"}
	for _, a := range strings.Fields("X86_64 AARCH64 ARM PPC64LE RISCV64 S390X") {
		p.ArchMap = append(p.ArchMap, profileArch{"SCMP_ARCH_" + a, []string{}})
	}
	allow := func(names []string, args ...profileArg) *profileRule {
		p.Syscalls = append(p.Syscalls, profileRule{Names: names, Action: "SCMP_ACT_ALLOW", Args: args})
		return &p.Syscalls[len(p.Syscalls)-1]
	}
	masked := func(index uint, mask, value uint64) profileArg {
		return profileArg{index, mask, value, "SCMP_CMP_MASKED_EQ"}
	}
	allow(seccomp.Calls())
	// The flags of clone are its first argument, and on one architecture the second.
	second := map[string]any{"arches": []string{"s390x"}}
	allow([]string{"clone"}, masked(0, seccomp.AnyNamespace, 0)).Excludes = second
	allow([]string{"clone"}, masked(1, seccomp.AnyNamespace, 0)).Includes = second
	for _, family := range seccomp.Families {
		allow([]string{"socket", "socketpair"}, masked(0, seccomp.LowWord, family))
	}
	allow([]string{"socket", "socketpair"}, masked(0, seccomp.LowWord, seccomp.Netlink), masked(2, seccomp.LowWord, 0))
	for _, execution := range seccomp.Personalities {
		allow([]string{"personality"}, masked(0, seccomp.LowWord, execution))
	}
	p.Syscalls = append(p.Syscalls, profileRule{Names: seccomp.Unknown, Action: "SCMP_ACT_ERRNO", ErrnoRet: seccomp.ENOSYS})
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // it is a constant
	}
	return string(text)
})
