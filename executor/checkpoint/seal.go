package checkpoint

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/execbroker/execbroker/executor"
)

// MinKey is the smallest number of bytes of a key for Seal.
const MinKey = 32

// sealMark begins sealed archives, so that the same key in another use authenticates nothing here.
// It has their version.
const (
	sealMark    = "execbroker checkpoint seal 1\n"
	sealVersion = 1
)

// anyMark is how a sealed archive of any version begins.
var anyMark = regexp.MustCompile(`^execbroker checkpoint seal (\d{1,6})\n`)

// A Binding says to whom an archive belongs, and how well its code was enclosed. Empty fields are
// values like others.
type Binding struct {
	Owner        string                 `json:"owner"`        // driver.Env.Owner of the backend
	Subject      string                 `json:"subject"`      // Spec.Subject
	Conversation string                 `json:"conversation"` // its name in the program
	Language     executor.Language      `json:"language"`
	Network      executor.NetworkPolicy `json:"network"`   // of the session
	Isolation    executor.Isolation     `json:"isolation"` // likewise, from its Capabilities
}

// Seal returns an archive with b and a code (HMAC with SHA-256) over both. The content is not
// encrypted. A key has at least MinKey random bytes.
func Seal(key []byte, b Binding, archive []byte) ([]byte, error) {
	if len(key) < MinKey {
		return nil, sealError(executor.ErrInvalid, executor.Denial{}, fmt.Errorf("the key has %d bytes, at least %d are needed", len(key), MinKey))
	}
	raw, err := json.Marshal(b)
	if err != nil {
		return nil, sealError(executor.ErrInvalid, executor.Denial{}, err)
	}
	sealed := binary.BigEndian.AppendUint32([]byte(sealMark), uint32(len(raw)))
	sealed = append(append(sealed, raw...), archive...)
	return append(sealed, code(key, sealed)...), nil
}

// Open checks a sealed archive and returns it for Restore into a session that now describes. It
// fails with executor.ErrDenied if the archive was not sealed with key, was changed since, or
// belongs to another owner, subject, conversation or language; if now has a wider network; and if
// now has a weaker isolation, by executor.Isolation.AtLeast. Of an allow-list, each host has to be
// in the sealed one, spelled alike. A seal of a later version is executor.ErrUnavailable with a
// *VersionError.
func Open(key []byte, now Binding, sealed []byte) (archive []byte, err error) {
	was, archive, err := Unseal(key, sealed)
	if err != nil {
		return nil, err
	}
	deny := func(rule executor.Rule, why string) ([]byte, error) { return nil, denied(rule, why) }
	switch {
	case was.Owner != now.Owner || was.Subject != now.Subject || was.Conversation != now.Conversation:
		return deny(executor.RuleOwner, "the archive belongs to another owner, subject or conversation")
	case was.Language != now.Language:
		return deny("", "the archive is of another language")
	case !within(now.Network, was.Network):
		return deny("", "the network is wider than it was")
	case !now.Isolation.AtLeast(was.Isolation):
		return deny("", fmt.Sprintf("isolation %q is weaker than %q", now.Isolation, was.Isolation))
	}
	return archive, nil
}

// Unseal checks that an archive was sealed with key and not changed since, and returns it with its
// Binding, which the caller compares with what it knows. Its errors are those of Open.
func Unseal(key, sealed []byte) (b Binding, archive []byte, err error) {
	content := sealed[:max(len(sealed)-sha256.Size, 0)]
	if len(key) < MinKey || !hmac.Equal(code(key, content), sealed[len(content):]) {
		return Binding{}, nil, denied("", "the archive was not sealed with this key, or was changed since")
	}
	if m := anyMark.FindSubmatch(content); m != nil {
		if v, _ := strconv.Atoi(string(m[1])); v > sealVersion {
			return Binding{}, nil, sealError(executor.ErrUnavailable, executor.Denial{}, &VersionError{v, sealVersion})
		}
	}
	rest, ok := bytes.CutPrefix(content, []byte(sealMark))
	if !ok || len(rest) < 4 || uint64(len(rest)-4) < uint64(binary.BigEndian.Uint32(rest)) {
		return Binding{}, nil, denied("", "the seal is of another version")
	}
	n := 4 + int(binary.BigEndian.Uint32(rest))
	if err := decode(rest[4:n], &b); err != nil {
		return Binding{}, nil, denied("", "the seal is of another version")
	}
	return b, rest[n:], nil
}

func denied(rule executor.Rule, why string) error {
	return sealError(executor.ErrDenied, executor.Denial{Rule: rule}, errors.New(why))
}

// within reports whether p allows nothing that q does not.
func within(p, q executor.NetworkPolicy) bool {
	switch {
	case p.Mode == "" || p.Mode == executor.NetworkNone || q.Mode == executor.NetworkFull:
		return true
	case p.Mode != executor.NetworkAllowlist || q.Mode != executor.NetworkAllowlist:
		return false
	}
	return !slices.ContainsFunc(p.Hosts, func(h string) bool { return !slices.Contains(q.Hosts, h) })
}

func code(key, content []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(content)
	return h.Sum(nil)
}

func sealError(kind error, d executor.Denial, err error) error {
	return &executor.Error{Op: "seal", Kind: kind, Ran: executor.RanNo, Denied: d, Err: err}
}
