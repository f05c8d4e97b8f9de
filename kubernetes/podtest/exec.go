package podtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/gorilla/websocket"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The protocol of streams and its channels.
const (
	protocol      = "v5.channel.k8s.io"
	channelIn     = 0
	channelOut    = 1
	channelErr    = 2
	channelStatus = 3
	channelClose  = 255 // of another channel, which follows
)

const maxMessage = 1 << 20 // of a client

// streams is a connection of a client to a process.
type streams struct {
	conn    *websocket.Conn
	mu      sync.Mutex // one message at a time
	reading sync.WaitGroup
}

// send sends a message.
func (s *streams) send(channel byte, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn.WriteMessage(websocket.BinaryMessage, append([]byte{channel}, p...))
}

// notStarted is how an engine begins to say, as if the process had, that there is none.
var notStarted = []string{"OCI runtime exec failed", "cannot exec in a stopped state"}

var errNotStarted = errors.New("the process was not started")

// output is what a process writes.
type output struct {
	s       *streams
	channel byte
}

// Write implements io.Writer.
func (o output) Write(p []byte) (int, error) {
	if slices.ContainsFunc(notStarted, func(begin string) bool { return bytes.HasPrefix(p, []byte(begin)) }) {
		return 0, errNotStarted // a node says so in the status
	}
	if err := o.s.send(o.channel, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// exec starts a process in a pod.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) (any, error) {
	command := r.URL.Query()["command"]
	if len(command) == 0 {
		return nil, apierrors.NewBadRequest("you must specify at least 1 command for the container")
	}
	return s.stream(w, r, func(ctx context.Context, id string, to *streams) (metav1.Status, error) {
		made, err := s.engine.ExecCreate(ctx, id, client.ExecCreateOptions{User: "0:0", AttachStdin: true, AttachStdout: true, AttachStderr: true, Cmd: command})
		if err != nil {
			return metav1.Status{}, err
		}
		a, err := s.engine.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
		if err != nil {
			return metav1.Status{}, err
		}
		if err := to.join(ctx, &a.HijackedResponse); err != nil {
			return metav1.Status{}, err
		}
		i, err := s.engine.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
		if err != nil || i.ExitCode == 0 {
			return metav1.Status{Status: metav1.StatusSuccess}, err
		}
		return failed(i.ExitCode), nil
	})
}

// attach connects to the main process of a pod. What that has said before is lost.
func (s *Server) attach(w http.ResponseWriter, r *http.Request) (any, error) {
	return s.stream(w, r, func(ctx context.Context, id string, to *streams) (metav1.Status, error) {
		a, err := s.engine.ContainerAttach(ctx, id, client.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
		if err != nil {
			return metav1.Status{}, err
		}
		return metav1.Status{Status: metav1.StatusSuccess}, to.join(ctx, &a.HijackedResponse)
	})
}

// failed is the status of a process that has ended with an exit code.
func failed(code int) metav1.Status {
	return metav1.Status{
		Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Message: fmt.Sprintf("command terminated with non-zero exit code: exit status %d", code),
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: strconv.Itoa(code)}}},
	}
}

// errGone says that a client has gone: nobody is left to be told anything.
var errGone = errors.New("the client has gone")

// stream answers with a WebSocket and only then looks for the container, as an API server does that
// leaves this to the node.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, start func(context.Context, string, *streams) (metav1.Status, error)) (any, error) {
	p, err := s.find(r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	node, phase, id := p.object.Spec.NodeName, p.object.Status.Phase, p.container
	s.mu.Unlock()
	switch {
	case phase == corev1.PodSucceeded || phase == corev1.PodFailed:
		return nil, apierrors.NewBadRequest("cannot exec into a container in a completed pod; current phase is " + string(phase))
	case node == "":
		return nil, apierrors.NewBadRequest("pod " + p.object.Name + " does not have a host assigned")
	}
	s.work.Add(1) // before Upgrade: until then the server itself waits for it
	defer s.work.Done()
	up := websocket.Upgrader{Subprotocols: []string{protocol}, CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return nil, nil // it has answered
	}
	to := &streams{conn: conn}
	defer to.reading.Wait()
	defer conn.Close()
	defer context.AfterFunc(s.life, func() { conn.Close() })()
	conn.SetReadLimit(maxMessage)
	status := apierrors.NewInternalError(fmt.Errorf("unable to upgrade connection: container not found (%q)", p.object.Spec.Containers[0].Name)).Status()
	if id != "" {
		said, err := start(s.life, id, to)
		switch {
		case errors.Is(err, errGone):
			return nil, nil
		case err == nil:
			status = said
		}
	}
	if b, err := json.Marshal(status); err == nil && to.send(channelStatus, b) == nil {
		_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")) // it may have gone
	}
	return nil, nil
}

// join connects a client with a process until either ends. Its reader ends with the connection to
// the client.
func (s *streams) join(ctx context.Context, process *client.HijackedResponse) error {
	defer process.Close()
	defer context.AfterFunc(ctx, process.Close)()
	gone := make(chan struct{})
	s.reading.Go(func() {
		defer process.Close()
		defer close(gone)
		for {
			kind, b, err := s.conn.ReadMessage()
			switch {
			case err != nil || kind != websocket.BinaryMessage || len(b) == 0:
				return
			case b[0] == channelIn && len(b) > 1:
				_, _ = process.Conn.Write(b[1:]) // a process that has ended loses it
			case b[0] == channelClose && len(b) == 2 && b[1] == channelIn:
				_ = process.CloseWrite() // likewise
			}
		}
	})
	_, err := stdcopy.StdCopy(output{s, channelOut}, output{s, channelErr}, process.Reader)
	select {
	case <-gone:
		return errGone
	default:
		return err
	}
}
