package seccomp

// Rule is about calls that go by what is in their registers. It applies where all of its Args hold.
// Where no rule for a call applies, the call is refused with EPERM; where several do, they say the
// same.
type Rule struct {
	Calls []string
	Args  []Arg
	Errno uint // of the refusal; zero: the call is allowed
}

// Arg compares the bits in Mask of an argument with Value.
type Arg struct {
	Index       uint
	Mask, Value uint64
}

// lowWord is the part of an argument that is an int: what is above it does not count for the
// kernel.
const lowWord = 0xFFFFFFFF

// What arguments are compared with.
const (
	anyNamespace = 0x7E020000 // the flags of clone that make namespaces

	unix, inet, inet6, netlink = 1, 2, 10, 16 // families of sockets
	families                   = 6            // bits of them
	protocols                  = 5            // bits of those of NETLINK, of which 0 tells of routes

	socketLevel   = 1 // of setsockopt
	levels        = 9 // bits of levels
	socketOptions = 7 // bits of the options of that level

	setFilter = 22 // of prctl
	options   = 8  // bits of most options of prctl

	newListener = 1 << 3 // of seccomp: a descriptor that keeps the filter alive when its processes are gone

	hugeMapping, hugeFile, hugeShared = 0x40000, 4, 0x800 // of mmap, memfd_create, shmget

	einval, eafnosupport = 22, 97
)

// filterOptions are SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF and
// SO_ATTACH_REUSEPORT_EBPF: filters that the kernel compiles for one socket.
var filterOptions = []uint64{26, 50, 51, 52}

// namedOptions are those of prctl that have large numbers: PR_SET_VMA, PR_GET_AUXV, PR_SET_PTRACER.
var namedOptions = []uint64{0x53564d41, 0x41555856, 0x59616d61}

// Rules returns the rules for calls that are in none of the other lists.
func (p Profile) Rules() []Rule {
	rules := append(p.narrowing(), Rule{Calls: []string{"clone"}, Args: []Arg{{0, anyNamespace, 0}}})
	// The usual execution domain, and the question which it is.
	return append(rules, allow(is(0, 0, lowWord), "personality")...)
}

// narrowing returns the rules that the supervisor of package runner enforces as well.
func (p Profile) narrowing() (rules []Rule) {
	// Other families are not divided by network namespaces, as VSOCK, or are ways into parts of the
	// kernel that nobody needs.
	rules = append(rules, allow(is(0, unix, inet, inet6), "socket", "socketpair")...)
	rules = append(rules, Rule{Calls: []string{"socket", "socketpair"}, Args: []Arg{{0, lowWord, netlink}, {2, lowWord, 0}}})
	for _, a := range except(2, protocols, 0) {
		rules = append(rules, Rule{[]string{"socket", "socketpair"}, []Arg{{0, lowWord, netlink}, a}, eafnosupport})
	}
	for _, a := range except(0, families, unix, inet, inet6, netlink) {
		rules = append(rules, Rule{[]string{"socket", "socketpair"}, []Arg{a}, eafnosupport})
	}
	rules = append(rules, allow(except(1, levels, socketLevel), "setsockopt")...)
	rules = append(rules, allow(except(2, socketOptions, filterOptions...), "setsockopt")...)

	// Huge pages are the machine's, and no limit of memory counts them.
	rules = append(rules,
		Rule{Calls: []string{"mmap", "mmap2"}, Args: []Arg{{3, hugeMapping, 0}}},
		Rule{Calls: []string{"memfd_create"}, Args: []Arg{{1, hugeFile, 0}}},
		Rule{Calls: []string{"shmget"}, Args: []Arg{{2, hugeShared, 0}}})

	if p.CodeFilters {
		return append(rules, Rule{Calls: []string{"seccomp"}, Args: []Arg{{1, newListener, 0}}})
	}
	rules = append(rules, allow(except(0, options, setFilter), "prctl")...)
	rules = append(rules, allow(is(0, namedOptions...), "prctl")...)
	// As in a kernel without filters.
	return append(rules, Rule{[]string{"prctl"}, is(0, setFilter), einval})
}

// allow returns a rule for each of args, one of which has to hold.
func allow(args []Arg, calls ...string) (rules []Rule) {
	for _, a := range args {
		rules = append(rules, Rule{Calls: calls, Args: []Arg{a}})
	}
	return rules
}

// is returns one comparison for each value.
func is(index uint, values ...uint64) (args []Arg) {
	for _, v := range values {
		args = append(args, Arg{index, lowWord, v})
	}
	return args
}

// except returns comparisons of which one holds for every number of so many bits but values. An
// engine has no other way to say that an int is not a certain number: it compares for inequality
// only what is above the int as well.
func except(index uint, bits int, values ...uint64) (args []Arg) {
	var divide func(bit int, mask, value uint64, values []uint64)
	divide = func(bit int, mask, value uint64, values []uint64) {
		if len(values) == 0 {
			args = append(args, Arg{index, mask, value})
			return
		}
		if bit < 0 {
			return
		}
		for _, b := range []uint64{0, 1 << bit} {
			var has []uint64
			for _, v := range values {
				if v&(1<<bit) == b {
					has = append(has, v)
				}
			}
			divide(bit-1, mask|1<<bit, value|b, has)
		}
	}
	divide(bits-1, lowWord&^(1<<bits-1), 0, values)
	return args
}
