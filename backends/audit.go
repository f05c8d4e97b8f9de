package backends

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/execbroker/execbroker/executor"
)

// Audit says who ran what, where, and how it ended. Code is there as a hash only: what users write
// is theirs, and a hash still tells whether two programs are one.
type Audit struct {
	Time       time.Time           `json:"time"`          // of the beginning
	Op         string              `json:"op"`            // "acquire", "create", "attach", "run", "install", "upload", "download", "dial"
	Key        string              `json:"key,omitempty"` // of acquire
	Subject    string              `json:"subject,omitempty"`
	Attributes map[string]string   `json:"attributes,omitempty"` // of the Spec; after Attach those of the handle, which carries up to 2 KiB of them
	Origin     executor.Origin     `json:"origin"`               // without Backend: nothing served
	Run        string              `json:"run,omitempty"`        // Request.ID, or Result.ID where one was made
	Language   executor.Language   `json:"language,omitempty"`
	Packages   []executor.Packages `json:"packages,omitempty"` // of create and install
	CodeSHA256 string              `json:"code_sha256,omitempty"`
	CodeBytes  int                 `json:"code_bytes,omitempty"`
	Status     executor.Status     `json:"status,omitempty"` // of runs and installations
	Reason     executor.Reason     `json:"reason,omitempty"`
	Error      string              `json:"error,omitempty"` // executor.KindName: "denied", "unavailable"
	Ran        string              `json:"ran"`             // whether code of the user may have run: "no", "maybe", "yes"
	Rule       executor.Rule       `json:"rule,omitempty"`  // with the Error "denied": what refused
	File       string              `json:"file,omitempty"`  // of upload and download, as the caller named it
	FileBytes  int64               `json:"file_bytes,omitempty"`
	Port       int                 `json:"port,omitempty"` // of dial, whose audit comes when it is connected or refused
	Duration   time.Duration       `json:"duration_ns"`
}

// code returns the hash and the size of what a request runs. The words of a command are kept apart
// by a NUL, which none of them holds.
func code(req executor.Request) (sum string, size int) {
	text := []byte(req.Code)
	size = len(text)
	for i, word := range req.Command {
		if i > 0 {
			text = append(text, 0)
		}
		text = append(text, word...)
		size += len(word)
	}
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:]), size
}

// closing fills in how an operation ended.
func (a *Audit) closing(res *executor.Result, err error) {
	a.Duration = time.Since(a.Time)
	did := executor.RanNo
	if res != nil {
		a.Run, a.Status, a.Reason = res.ID, res.Status, res.Reason
		did = executor.RanYes
	}
	if err != nil {
		a.Error = executor.KindName(err)
		if e := (*executor.Error)(nil); errors.As(err, &e) {
			a.Rule = e.Denied.Rule
		}
		if a.Op == "run" || a.Op == "install" { // nothing else runs code of the user
			did = ran(err)
		}
	}
	a.Ran = did.String()
}
