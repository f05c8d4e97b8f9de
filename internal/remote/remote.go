// Package remote is the few lines that adapters of remote providers share.
package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
)

// Pause waits, or returns why ctx has ended.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// Words bounds what a provider says and people are shown: at most n bytes of valid UTF-8 without
// control characters.
func Words(s string, n int) string {
	s = strings.ToValidUTF8(s[:min(len(s), n)], "")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s))
}

// Carries reports whether labels have has all of want.
func Carries(has, want map[string]string) bool {
	for k, v := range want {
		if got, ok := has[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// OwnerHash returns the name of an owner as 40 letters and digits, for what a provider takes no
// other characters in.
func OwnerHash(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:20])
}
