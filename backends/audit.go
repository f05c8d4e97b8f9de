package backends

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/rollout"
)

// Audit says who ran what, where, and how it ended. Code is included only as a hash, because it
// belongs to its user. The hash still shows whether two programs are equal.
type Audit struct {
	Time       time.Time           `json:"time"`          // when the operation began
	Op         string              `json:"op"`            // "acquire", "create", "attach", "run", "checkpoint", "install", "upload", "download", "dial", "end", "rollout", "shadow"
	Key        string              `json:"key,omitempty"` // for acquire
	Subject    string              `json:"subject,omitempty"`
	Attributes map[string]string   `json:"attributes,omitempty"` // from the Spec; after Attach from the handle, which contains up to 2 KiB of them
	Origin     executor.Origin     `json:"origin"`               // Backend is empty if no backend served the operation
	Run        string              `json:"run,omitempty"`        // Request.ID, or Result.ID if the request had none
	Language   executor.Language   `json:"language,omitempty"`
	Packages   []executor.Packages `json:"packages,omitempty"` // for create and install
	CodeSHA256 string              `json:"code_sha256,omitempty"`
	CodeBytes  int                 `json:"code_bytes,omitempty"`
	Status     executor.Status     `json:"status,omitempty"` // for runs and installations
	Reason     executor.Reason     `json:"reason,omitempty"`
	Error      string              `json:"error,omitempty"` // executor.KindName: "denied", "unavailable"
	Ran        string              `json:"ran"`             // whether code of the user may have run: "no", "maybe", "yes"
	Rule       executor.Rule       `json:"rule,omitempty"`  // for the Error "denied": the rule that refused
	File       string              `json:"file,omitempty"`  // for upload and download, as the caller named it
	FileBytes  int64               `json:"file_bytes,omitempty"`
	Port       int                 `json:"port,omitempty"` // for dial, which is audited when it is connected or refused
	Duration   time.Duration       `json:"duration_ns"`
	Rollout    *rollout.Decision   `json:"rollout,omitempty"`  // for rollout: a decision, with its figures
	Exposure   *Exposure           `json:"exposure,omitempty"` // for create: the assignment, if the split had several arms and no rule refused
	Shadow     *ShadowAudit        `json:"shadow,omitempty"`   // for shadow
	Cost       executor.Money      `json:"cost,omitempty"`     // of a run, an installation or a file; for end that of the whole session in this process
}

// code returns the hash and the size of what a request runs. The words of a command are separated
// by a NUL, which no word can contain.
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
		if a.Op == "run" || a.Op == "install" || a.Shadow != nil && a.Shadow.What == "run" { // no other operation runs code of the user
			did = ran(err)
		}
	}
	a.Ran = did.String()
}
