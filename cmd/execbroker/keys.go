package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/execbroker/execbroker/server"
)

// keysVariable names the environment variable with the API keys. On a command line every user of
// the machine could read them.
const keysVariable = "EXECBROKER_API_KEYS"

// keyList returns the keys in the environment variable.
func (a *app) keyList() (keys []string) {
	for key := range strings.SplitSeq(a.getenv(keysVariable), ",") {
		if key = strings.TrimSpace(key); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// clients returns the clients of a server, from the file or the environment variable. If there are
// none and only this machine can reach the address, it generates a key and returns it.
func (a *app) clients(file, listen string) (keys server.Keys, made string, err error) {
	list := a.keyList()
	switch {
	case file != "" && len(list) > 0:
		return keys, "", usage("--keys: %s contains keys too; use only one of them", keysVariable)
	case file != "":
		data, err := os.ReadFile(file)
		if err != nil {
			return keys, "", usage("--keys: %w", err)
		}
		if keys, err = server.ParseKeys(data); err != nil {
			return keys, "", usage("--keys: %s: %w", file, err)
		}
	case len(list) > 0:
		for i, key := range list {
			if err := keys.Add(key, server.Client{}); err != nil {
				return keys, "", usage("%s: key %d: %w", keysVariable, i+1, err)
			}
		}
	case !loopback(listen):
		return keys, "", usage("--listen: other machines can connect to %s, so the keys of clients must be in %s or --keys", listen, keysVariable)
	default:
		made = newKey("eb_")
		if err := keys.Add(made, server.Client{Operator: true}); err != nil { // it is printed for whoever started the server
			return keys, "", fmt.Errorf("a new key: %w", err)
		}
	}
	return keys, made, nil
}

// newKey returns a random key.
func newKey(prefix string) string {
	b := make([]byte, 20)
	_, _ = rand.Read(b) // Read never fails
	return prefix + hex.EncodeToString(b)
}

// loopback reports whether only this machine can reach an address, which may be a Unix socket.
func loopback(listen string) bool {
	if strings.HasPrefix(listen, unixPrefix) {
		return true
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
