package seccomp

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// What a filter answers.
const (
	allow   = 0x7FFF0000
	refuse  = 0x00050000 | 1 // EPERM
	unknown = 0x00050000 | ENOSYS
)

// Instructions of the kernel's filters, and where in their data things are.
const (
	load     = 0x20
	equal    = 0x15
	anyBit   = 0x45
	answer   = 0x06
	atNumber = 0
	atArch   = 4
	atArgs   = 16 // each of 64 bits, the low word first on these architectures
)

// program is a filter that is being assembled.
type program []byte

func (p *program) add(code uint16, yes, no uint8, k uint32) {
	*p = binary.LittleEndian.AppendUint16(*p, code)
	*p = append(*p, yes, no)
	*p = binary.LittleEndian.AppendUint32(*p, k)
}

// Filter returns the filter as a program for the kernel, for an architecture by the name that Go
// has for it. It fails for one whose numbers are not known.
func Filter(arch string) ([]byte, error) {
	table, ok := numbers[arch]
	if !ok {
		return nil, fmt.Errorf("no filter of system calls for %s", arch)
	}
	number := map[string]uint32{}
	for _, pair := range strings.Fields(table) {
		name, text, _ := strings.Cut(pair, "=")
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("number of %s: %w", name, err)
		}
		number[name] = uint32(n)
	}
	var p program
	p.add(load, 0, 0, atArch)
	p.add(equal, 1, 0, auditArch[arch])
	p.add(answer, 0, 0, unknown) // another architecture has other numbers
	p.add(load, 0, 0, atNumber)
	always := func(names []string, with uint32) {
		for _, name := range names {
			if n, ok := number[name]; ok {
				p.add(equal, 0, 1, n)
				p.add(answer, 0, 0, with)
			}
		}
	}
	always(Calls(), allow)
	always(Unknown, unknown)
	p.add(equal, 0, 4, number["clone"])
	p.add(load, 0, 0, atArgs)
	p.add(anyBit, 1, 0, AnyNamespace)
	p.add(answer, 0, 0, allow)
	p.add(answer, 0, 0, refuse)
	one := func(name string, values []uint64) {
		p.add(equal, 0, uint8(2*len(values)+2), number[name])
		p.add(load, 0, 0, atArgs)
		for _, v := range values {
			p.add(equal, 0, 1, uint32(v))
			p.add(answer, 0, 0, allow)
		}
		p.add(load, 0, 0, atNumber)
	}
	one("personality", Personalities)
	for _, name := range []string{"socket", "socketpair"} {
		one(name, Families)
		p.add(equal, 0, 6, number[name])
		p.add(load, 0, 0, atArgs)
		p.add(equal, 0, 2, Netlink)
		p.add(load, 0, 0, atArgs+2*8)
		p.add(equal, 1, 0, 0)
		p.add(answer, 0, 0, refuse)
		p.add(answer, 0, 0, allow)
	}
	p.add(answer, 0, 0, refuse)
	return p, nil
}
