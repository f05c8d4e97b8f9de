package router

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/execbroker/execbroker/executor"
)

// match reports whether m selects the Spec.
func (m Match) match(s *executor.Spec) bool {
	return contains(m.Attributes, s.Attributes) && contains(m.Labels, s.Labels) &&
		(len(m.Languages) == 0 || slices.ContainsFunc(m.Languages, func(l executor.Language) bool { return slices.Contains(s.Languages, l) })) &&
		(len(m.Templates) == 0 || slices.Contains(m.Templates, s.Template)) &&
		!slices.ContainsFunc(m.Require, func(f executor.Feature) bool { return !slices.Contains(s.Require, f) })
}

// contains reports whether have has every entry of want.
func contains(want, have map[string]string) bool {
	for k, w := range want {
		if h, ok := have[k]; !ok || w != "*" && w != h {
			return false
		}
	}
	return true
}

// assign returns the backend of a subject. Every unit of weight is a ticket. The number of a ticket
// depends only on the salt, the subject, the backend and the position of the ticket, and the
// highest number wins. So each backend wins in proportion to its weight, and a ticket that is added
// or removed changes nothing between the other tickets. bucket is the ticket that won, from 1 to
// the weight of the winner.
func (r *Route) assign(subject string) (winner string, bucket int) {
	salt := cmp.Or(r.Salt, r.Name)
	var best uint64
	buf := make([]byte, 0, 128)
	for _, s := range r.Split {
		if s.Weight == 0 {
			continue
		}
		// Lengths in front make ("ab", "c") and ("a", "bc") different.
		buf = buf[:0]
		for _, part := range [...]string{salt, subject, s.Backend} {
			buf = binary.BigEndian.AppendUint32(buf, uint32(len(part)))
			buf = append(buf, part...)
		}
		h := sha256.Sum256(buf)
		state := binary.BigEndian.Uint64(h[:])
		for i := range s.Weight {
			state += 0x9e3779b97f4a7c15
			// Two tickets have equal numbers once in 2^64 pairs. Then the backend's name decides.
			if n := mix(state); n > best || n == best && s.Backend < winner || winner == "" {
				best, winner, bucket = n, s.Backend, i+1
			}
		}
	}
	return winner, bucket
}

// mix is the output function of the SplitMix64 generator. It turns a counter into numbers that look
// independent.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// only returns the backend that has all the weight, or "" if subjects decide.
func (r *Route) only() string {
	name := ""
	for _, s := range r.Split {
		switch {
		case s.Weight == 0:
		case name != "":
			return ""
		default:
			name = s.Backend
		}
	}
	return name
}
