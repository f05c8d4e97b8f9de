package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// minKey is the length of the shortest accepted key: shorter ones can be guessed.
const minKey = 16

// Client is the owner of an API key.
type Client struct {
	// Subject is the subject of all sandboxes of the key: see executor.Spec. Keys with the same
	// subject share its limits but not its sessions. Empty: a name made from the hash of the key.
	Subject string `json:"subject,omitempty"`
	// Attributes are the attributes of the sandboxes, which routes match.
	Attributes map[string]string `json:"attributes,omitempty"`
	// Operator lets the key read what concerns all keys, GET /v1/experiments and GET /v1/overview,
	// and choose the backend of a session.
	Operator bool `json:"operator,omitempty"`

	id keyID // identifies the key; everything of a key is stored under it
}

// ID names the key without revealing it. It depends only on the key.
func (c Client) ID() string { return hex.EncodeToString(c.id[:]) }

// keyID is the hash of a key. The time of a comparison reveals nothing about the key, and a log of
// it does not contain the key.
type keyID [sha256.Size]byte

// Keys are the API keys of a server. The zero value accepts no key. Keys is safe for concurrent use
// if it is no longer changed.
type Keys struct{ clients map[keyID]Client }

// Add adds a key with 16 to 512 printable characters of ASCII.
func (k *Keys) Add(key string, c Client) error {
	if len(key) < minKey || len(key) > 512 || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("want %d to 512 printable characters without spaces", minKey)
	}
	c.id = sha256.Sum256([]byte(key))
	if _, ok := k.clients[c.id]; ok {
		return errors.New("is there twice")
	}
	if c.Subject == "" {
		c.Subject = "key-" + hex.EncodeToString(c.id[:6])
	}
	if k.clients == nil {
		k.clients = map[keyID]Client{}
	}
	k.clients[c.id] = c
	return nil
}

// Len returns the number of keys.
func (k *Keys) Len() int { return len(k.clients) }

// Lookup returns the owner of a key.
func (k *Keys) Lookup(key string) (Client, bool) {
	c, ok := k.clients[sha256.Sum256([]byte(key))]
	return c, ok
}

// ParseKeys reads a list of keys in JSON: [{"key": "...", "subject": "team-a", "attributes":
// {"plan": "pro"}}]. It returns all errors at once. They name the position in the list but do not
// contain the key.
func ParseKeys(data []byte) (Keys, error) {
	var list []struct {
		Key string `json:"key"`
		Client
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		return Keys{}, fmt.Errorf("keys: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Keys{}, errors.New("keys: unexpected data after the list")
	}
	var k Keys
	var errs []error
	for i, e := range list {
		if err := k.Add(e.Key, e.Client); err != nil {
			errs = append(errs, fmt.Errorf("keys[%d]: %w", i, err))
		}
	}
	if len(list) == 0 {
		errs = append(errs, errors.New("keys: the list is empty; no request would be accepted"))
	}
	return k, errors.Join(errs...)
}
