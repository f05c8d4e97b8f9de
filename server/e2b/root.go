package e2b

import (
	"regexp"
	"slices"

	"github.com/execbroker/execbroker/executor"
	pb "github.com/execbroker/execbroker/internal/envd/processpb"
)

const rootUser = "root"

// noRoot is what clients are told that want to be root.
const noRoot = "sandboxes of this server have no root; put what needs it into the image of the template"

// sudo finds the program in a line for a shell.
var sudo = regexp.MustCompile(`(^|[\s;&|(/])sudo(\s|$)`)

const notFoundByShell = 127 // is the exit code when a shell has not found a program

// sudoRefusal returns a line for the stderr of a command that did not find sudo, because the shell
// says no more than that there is no such program. It is nil for other commands, and where clients
// may be root.
func (b *sandbox) sudoRefusal(c *pb.ProcessConfig, r *executor.Result) []byte {
	if b.root != nil || r.ExitCode != notFoundByShell || !slices.ContainsFunc(append([]string{c.Cmd}, c.Args...), sudo.MatchString) {
		return nil
	}
	return []byte("sudo: " + noRoot + "\n")
}
