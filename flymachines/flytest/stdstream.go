package flytest

import (
	"bytes"

	"github.com/moby/moby/api/pkg/stdcopy"
)

// plain takes the frames off what a container has printed to both of its outputs.
func plain(framed []byte) []byte {
	var b bytes.Buffer
	_, _ = stdcopy.StdCopy(&b, &b, bytes.NewReader(framed)) // a frame that is cut off is the last
	return b.Bytes()
}
