package bubblewrap

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/execbroker/execbroker/internal/bwrap"
	"github.com/execbroker/execbroker/internal/missing"
)

// The users of a sandbox, as it sees them. Groups from firstMark on mark what code has started: see
// package runner.
const (
	supervisorID = 0
	codeID       = 1000
	firstMark    = 40000
	marks        = 20000
)

// identity says whom the users of a sandbox are outside of it.
type identity struct {
	how        string // for people
	uids, gids []syscall.SysProcIDMap
	helpers    bool // the maps are written by newuidmap and newgidmap, whom this user may ask
	same       bool // there is one user, that of this program
}

// A span is a range of numbers of users or groups that this program may give to sandboxes.
type span struct{ first, size int }

func (s span) contains(n int) bool { return n >= s.first && n < s.first+s.size }

// Numbers that nobody gives away. Each sandbox has users of its own: the kernel counts some things
// for each user on the whole machine.
var (
	unusedUsers  = span{bwrap.FirstUser, bwrap.Users}
	unusedGroups = span{bwrap.FirstUser - 1<<16, 1 << 16}
)

// errOneUser is why sandboxes could only run as the user of this program.
var errOneUser = errors.New("this program is not root and has no range of subordinate users, so code would have its user")

// oneUser is errOneUser with what was not found, and what to do about it.
func oneUser(format string, args ...any) error {
	return missing.New("", fmt.Errorf("%w ("+format+")", append([]any{errOneUser}, args...)...),
		"install newuidmap (package uidmap) and add a range of 65536 to /etc/subuid and /etc/subgid, or set allow_weak")
}

// identify finds out whom the users of a sandbox can be.
func identify(weak bool) (identity, error) {
	if os.Geteuid() == 0 {
		return identifyRoot()
	}
	i, err := identifySubordinate()
	if errors.Is(err, errOneUser) && weak {
		return identity{
			how: "the user of this program", same: true,
			uids: []syscall.SysProcIDMap{{ContainerID: supervisorID, HostID: os.Geteuid(), Size: 1}},
			gids: []syscall.SysProcIDMap{{ContainerID: supervisorID, HostID: os.Getegid(), Size: 1}},
		}, nil
	}
	return i, err
}

// identifyRoot chooses users that nobody has.
func identifyRoot() (identity, error) {
	uids, err := free("/proc/self/uid_map", unusedUsers)
	if err != nil {
		return identity{}, err
	}
	gids, err := free("/proc/self/gid_map", unusedGroups)
	if err != nil {
		return identity{}, err
	}
	i := identity{how: "users that no account has"}
	return i, i.divide(uids, gids)
}

// free returns what root may use: all of unused or, in a namespace that has only a few users, the
// middle of their largest range.
func free(path string, unused span) (span, error) {
	have, err := mapped(path)
	largest := span{}
	for _, s := range have {
		if s.contains(unused.first) && s.contains(unused.first+unused.size-1) {
			return unused, nil
		}
		if s.size > largest.size {
			largest = s
		}
	}
	return span{largest.first + largest.size/4, largest.size / 2}, err
}

// mapped returns the users that there are in the namespace of this process.
func mapped(path string) (found []span, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		var inside, outside, n int
		if _, err := fmt.Sscan(line, &inside, &outside, &n); err == nil {
			found = append(found, span{inside, n})
		}
	}
	return found, nil
}

// identifySubordinate chooses from the ranges that the system has given to the user of this
// program.
func identifySubordinate() (identity, error) {
	for _, name := range []string{"newuidmap", "newgidmap", "nsenter"} {
		if _, err := exec.LookPath(name); err != nil {
			return identity{}, oneUser("%w", err)
		}
	}
	uids, err := subordinate("/etc/subuid")
	if err != nil {
		return identity{}, err
	}
	gids, err := subordinate("/etc/subgid")
	if err != nil {
		return identity{}, err
	}
	i := identity{how: "subordinate users", helpers: true}
	return i, i.divide(uids, gids)
}

// subordinate returns the largest range of the user of this program in a file.
func subordinate(path string) (largest span, err error) {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return span{}, err
	}
	number := strconv.Itoa(os.Getuid())
	name := number
	if u, err := user.LookupId(number); err == nil {
		name = u.Username
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 || f[0] != name && f[0] != number {
			continue
		}
		first, err := strconv.Atoi(f[1])
		size, serr := strconv.Atoi(f[2])
		if err == nil && serr == nil && size > largest.size {
			largest = span{first, size}
		}
	}
	if largest.size == 0 {
		return span{}, oneUser("%s has none for %s", path, name)
	}
	return largest, nil
}

// sandboxes counts those of this program, from a random number on.
var sandboxes atomic.Uint32

func init() { sandboxes.Store(rand.Uint32()) }

// divide gives the users of a sandbox numbers of ranges: two users that no other sandbox has, and
// groups that all may share, because they are marks that count within a sandbox only.
func (i *identity) divide(uids, gids span) error {
	if uids.size < 2 || gids.size < marks+2 {
		return oneUser("a range of %d users and %d groups is too small", uids.size, gids.size)
	}
	u := uids.first + 2*int(sandboxes.Add(1)%uint32(uids.size/2))
	i.uids = []syscall.SysProcIDMap{{ContainerID: supervisorID, HostID: u, Size: 1}, {ContainerID: codeID, HostID: u + 1, Size: 1}}
	i.gids = []syscall.SysProcIDMap{
		{ContainerID: supervisorID, HostID: gids.first, Size: 1}, {ContainerID: codeID, HostID: gids.first + 1, Size: 1},
		{ContainerID: firstMark, HostID: gids.first + 2, Size: marks},
	}
	return nil
}

// ours reports whether a process with a user may be the first of a sandbox that this program, or
// another of the same user, has made. Nobody else can become such a user.
func ours(uid int) bool {
	if os.Geteuid() == 0 {
		s, err := free("/proc/self/uid_map", unusedUsers)
		return err == nil && s.contains(uid)
	}
	s, err := subordinate("/etc/subuid")
	return uid == os.Geteuid() || err == nil && s.contains(uid)
}
