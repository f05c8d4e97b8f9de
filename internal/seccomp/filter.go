package seccomp

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// What a filter answers.
const (
	permit  = 0x7FFF0000
	fail    = 0x00050000 // with the error in the low bits
	refuse  = fail | 1   // EPERM
	unknown = fail | ENOSYS
)

// Instructions of the kernel's filters, and where in their data things are.
const (
	load     = 0x20
	equal    = 0x15
	atLeast  = 0x35
	jump     = 0x05
	and      = 0x54
	answer   = 0x06
	atNumber = 0
	atArch   = 4
	atArgs   = 16 // each of 64 bits, the low word first on these architectures

	x32 = 0x40000000 // the bit of the calls of a second mode of amd64
)

// program is a filter that is being assembled.
type program []byte

func (p *program) add(code uint16, yes, no uint8, k uint32) {
	*p = binary.LittleEndian.AppendUint16(*p, code)
	*p = append(*p, yes, no)
	*p = binary.LittleEndian.AppendUint32(*p, k)
}

func (p *program) answer(with uint32) { p.add(answer, 0, 0, with) }

// begin refuses other architectures, whose numbers are other calls, and loads the number.
func begin(arch string) (p program) {
	p.add(load, 0, 0, atArch)
	p.add(equal, 1, 0, auditArch[arch])
	p.answer(unknown)
	p.add(load, 0, 0, atNumber)
	return p
}

// each answers calls of which the arguments do not matter.
func (p *program) each(number map[string]uint32, names []string, with uint32) {
	for _, name := range names {
		if n, ok := number[name]; ok {
			p.add(equal, 0, 1, n)
			p.answer(with)
		}
	}
}

// rules answers calls by their arguments.
func (p *program) rules(number map[string]uint32, rules []Rule) {
	of := map[string][]Rule{}
	for _, r := range rules {
		for _, name := range r.Calls {
			of[name] = append(of[name], r)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		n, ok := number[name]
		if !ok {
			continue
		}
		var body program
		for _, r := range of[name] {
			body.rule(r)
		}
		body.answer(refuse)
		p.add(equal, 1, 0, n)
		p.add(jump, 0, 0, uint32(len(body)/instruction))
		*p = append(*p, body...)
	}
}

// instruction is the size of one.
const instruction = 8

// rule answers if r applies, and goes on behind it otherwise.
func (p *program) rule(r Rule) {
	var parts []program
	for _, a := range r.Args {
		var part program
		part.add(load, 0, 0, uint32(atArgs+8*a.Index))
		if a.Mask != lowWord {
			part.add(and, 0, 0, uint32(a.Mask))
		}
		parts = append(parts, part)
	}
	size := 1 // from the end of a comparison to the end of the rule
	for _, part := range parts[1:] {
		size += len(part)/instruction + 1
	}
	for i, part := range parts {
		*p = append(*p, part...)
		p.add(equal, 0, uint8(size), uint32(r.Args[i].Value))
		if i+1 < len(parts) {
			size -= len(parts[i+1])/instruction + 1
		}
	}
	if r.Errno != 0 {
		p.answer(fail | uint32(r.Errno))
	} else {
		p.answer(permit)
	}
}

// numbersOf returns the numbers of calls of an architecture by the name that Go has for it.
func numbersOf(arch string) (map[string]uint32, error) {
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
	return number, nil
}

// Filter returns the profile as a program for the kernel, for an architecture by the name that Go
// has for it. It fails for one whose numbers are not known.
func (p Profile) Filter(arch string) ([]byte, error) {
	number, err := numbersOf(arch)
	if err != nil {
		return nil, err
	}
	f := begin(arch)
	f.rules(number, p.Rules())
	f.each(number, p.Calls(), permit)
	f.each(number, p.Unknown(), unknown)
	f.answer(refuse)
	return f, nil
}

// Narrow returns what the supervisor of package runner installs, by the name that uname has for an
// architecture: a program that refuses what takes from the machine and not from the sandbox, or
// goes past a filter, and allows every other call.
func (p Profile) Narrow() (map[string][]byte, error) {
	programs := map[string][]byte{}
	for machine, arch := range machines {
		number, err := numbersOf(arch)
		if err != nil {
			return nil, err
		}
		f := begin(arch)
		f.add(atLeast, 0, 1, x32)
		f.answer(unknown)
		f.rules(number, p.narrowing())
		f.each(number, slices.DeleteFunc(p.Unknown(), func(name string) bool { return name == "clone3" }), unknown)
		f.each(number, flushes, refuse)
		f.answer(permit)
		programs[machine] = f
	}
	return programs, nil
}
