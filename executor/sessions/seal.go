package sessions

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"

	"github.com/execbroker/execbroker/executor/checkpoint"
)

// maxSealed is how much longer than its archive a sealed and encrypted one may be.
const maxSealed = 64 << 10

// derived returns a key for one use and one subject.
func (c *Checkpoints) derived(use, subject string) ([]byte, error) {
	return hkdf.Key(sha256.New, c.Key, nil, "execbroker checkpoint "+use+"\x00"+subject, 32)
}

// aead returns the cipher of a subject.
func (c *Checkpoints) aead(subject string) (cipher.AEAD, error) {
	key, err := c.derived("encrypt", subject)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal signs an archive and encrypts it for the Store.
func (c *Checkpoints) seal(b checkpoint.Binding, archive []byte) ([]byte, error) {
	key, err := c.derived("seal", b.Subject)
	if err != nil {
		return nil, err
	}
	sealed, err := checkpoint.Seal(key, b, archive)
	if err != nil {
		return nil, err
	}
	a, err := c.aead(b.Subject)
	if err != nil {
		return nil, err
	}
	return a.Seal(nil, nil, sealed, []byte(b.Conversation)), nil
}

var errDamaged = errors.New("the checkpoint is incomplete, was changed, or has another key")

// open decrypts what the Store has, and checks its seal.
func (c *Checkpoints) open(now checkpoint.Binding, stored []byte) ([]byte, error) {
	key, sealed, err := c.decrypt(now.Subject, now.Conversation, stored)
	if err != nil {
		return nil, err
	}
	return checkpoint.Open(key, now, sealed)
}

// decrypt returns what the Store has of a key of a subject, as it was sealed, and the key of the
// seal.
func (c *Checkpoints) decrypt(subject, conversation string, stored []byte) (key, sealed []byte, err error) {
	a, err := c.aead(subject)
	if err != nil {
		return nil, nil, err
	}
	if sealed, err = a.Open(nil, nil, stored, []byte(conversation)); err != nil {
		return nil, nil, errDamaged
	}
	key, err = c.derived("seal", subject)
	return key, sealed, err
}
