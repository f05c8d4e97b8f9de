package e2btest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/execbroker/execbroker/internal/envd/processpb"
)

// serveEnvd serves a request for the daemon of a sandbox.
func (f *faulty) serveEnvd(w http.ResponseWriter, r *http.Request, now Faults) {
	if now.FatalPings && fatalPing(r) {
		f.killAll(r)
		panic(http.ErrAbortHandler)
	}
	switch {
	case now.PackedDownloads && r.Method == http.MethodGet && r.URL.Path == "/files" && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip"):
		f.servePacked(w, r)
		return
	case (now.OneTag || now.DetachedOutput) && f.hidden(r, now):
		err := connect.NewError(connect.CodeNotFound, errors.New("the process was not found"))
		_ = connect.NewErrorWriter().Write(w, r, err) // a client that is gone needs no answer
		return
	case now.DetachedOutput && (r.URL.Path == pb.ProcessStartProcedure || r.URL.Path == pb.ProcessConnectProcedure):
		f.unseen(w, r) // so there is always somebody who hears what the command writes
		return
	}
	f.server.ServeHTTP(w, r)
}

// fatalPing reports whether a request ends envd.
func fatalPing(r *http.Request) bool {
	n, err := strconv.Atoi(r.Header.Get("Keepalive-Ping-Interval"))
	return err == nil && n <= 0
}

// within returns a client of the processes in the sandbox of a request.
func (f *faulty) within(r *http.Request) pb.ProcessClient {
	return pb.NewProcessClient(&http.Client{Transport: f}, "http://"+r.Host)
}

// asking makes a call for the sandbox of a request.
func asking[T any](r *http.Request, m *T) *connect.Request[T] {
	ask := connect.NewRequest(m)
	for _, name := range []string{"E2b-Sandbox-Id", "E2b-Sandbox-Port", "X-Access-Token", "E2b-Traffic-Access-Token"} {
		if v, ok := r.Header[name]; ok {
			ask.Header()[name] = v
		}
	}
	return ask
}

// list returns the commands of the sandbox of a request; none if it may not ask.
func (f *faulty) list(r *http.Request) []*pb.ProcessInfo {
	all, err := f.within(r).List(r.Context(), asking(r, &pb.ListRequest{}))
	if err != nil {
		return nil // the server says what is wrong
	}
	return all.Msg.Processes
}

// killAll ends all commands of the sandbox of a request.
func (f *faulty) killAll(r *http.Request) {
	for _, p := range f.list(r) {
		_, _ = f.within(r).SendSignal( // it may have ended
			r.Context(), asking(r, &pb.SendSignalRequest{
				Process: &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: p.Pid}}, Signal: pb.Signal_SIGNAL_SIGKILL,
			}))
	}
}

// selecting is a request that names a process.
type selecting interface {
	proto.Message
	GetProcess() *pb.ProcessSelector
}

// hidden reports whether a request names a process that is there and is not found.
func (f *faulty) hidden(r *http.Request, now Faults) bool {
	sel := selector(r)
	if sel == nil {
		return false
	}
	all := f.list(r)
	switch by := sel.Selector.(type) {
	case *pb.ProcessSelector_Tag:
		tagged := slices.DeleteFunc(all, func(p *pb.ProcessInfo) bool { return p.Tag == nil })
		return now.OneTag && len(tagged) > 1
	case *pb.ProcessSelector_Pid:
		living := slices.ContainsFunc(all, func(p *pb.ProcessInfo) bool { return p.Pid == by.Pid })
		return now.DetachedOutput && !living // its end was told
	}
	return false
}

// selector returns how a request names a process. The request can still be served. StreamInput is
// not looked at: it may never end.
func selector(r *http.Request) *pb.ProcessSelector {
	m := map[string]selecting{
		pb.ProcessConnectProcedure:    &pb.ConnectRequest{},
		pb.ProcessSendInputProcedure:  &pb.SendInputRequest{},
		pb.ProcessSendSignalProcedure: &pb.SendSignalRequest{},
		pb.ProcessUpdateProcedure:     &pb.UpdateRequest{},
		pb.ProcessCloseStdinProcedure: &pb.CloseStdinRequest{},
	}[r.URL.Path]
	if m == nil {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
	if err != nil {
		return nil // the server says what is wrong
	}
	codec := path.Base(r.Header.Get("Content-Type"))
	if stream, ok := strings.CutPrefix(codec, "connect+"); ok { // an envelope, with flags and a length
		if len(body) < 5 || body[0] != 0 || int(binary.BigEndian.Uint32(body[1:5])) != len(body)-5 {
			return nil
		}
		codec, body = stream, body[5:]
	}
	if codec == "proto" {
		err = proto.Unmarshal(body, m)
	} else {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, m)
	}
	if err != nil {
		return nil
	}
	return m.GetProcess()
}

// servePacked serves a download as gzip, which ends in good order wherever the content ends.
func (f *faulty) servePacked(w http.ResponseWriter, r *http.Request) {
	plain := r.Clone(r.Context())
	plain.Header.Set("Accept-Encoding", "identity")
	p := &packedWriter{ResponseWriter: w}
	defer func() {
		if broken := recover(); broken != nil && (broken != http.ErrAbortHandler || p.z == nil) {
			panic(broken)
		}
		if p.z != nil {
			_ = p.z.Close() // a client that is gone needs no end
		}
	}()
	f.server.ServeHTTP(p, plain)
}

// packedWriter packs an answer that is no error.
type packedWriter struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (p *packedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (p *packedWriter) WriteHeader(status int) {
	if status == http.StatusOK {
		p.Header().Del("Content-Length")
		p.Header().Set("Content-Encoding", "gzip")
		p.z = gzip.NewWriter(p.ResponseWriter)
	}
	p.ResponseWriter.WriteHeader(status)
}

func (p *packedWriter) Write(b []byte) (int, error) {
	if p.z == nil {
		return p.ResponseWriter.Write(b)
	}
	return p.z.Write(b)
}
