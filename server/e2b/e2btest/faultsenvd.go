package e2btest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"path"
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

// within returns a client of the daemon that a request is for, past all faults.
func (f *faulty) within(r *http.Request) (_ pb.ProcessClient, address http.Header) {
	address = http.Header{}
	for _, name := range []string{"E2b-Sandbox-Id", "E2b-Sandbox-Port", "X-Access-Token", "E2b-Traffic-Access-Token"} {
		if v := r.Header.Get(name); v != "" {
			address.Set(name, v)
		}
	}
	return pb.NewProcessClient(&http.Client{Transport: f}, "http://"+r.Host), address
}

// list returns the commands of the sandbox of a request; none if it may not ask.
func (f *faulty) list(r *http.Request) []*pb.ProcessInfo {
	client, address := f.within(r)
	ask := connect.NewRequest(&pb.ListRequest{})
	for name, v := range address {
		ask.Header()[name] = v
	}
	all, err := client.List(r.Context(), ask)
	if err != nil {
		return nil
	}
	return all.Msg.Processes
}

// killAll ends all commands of the sandbox of a request.
func (f *faulty) killAll(r *http.Request) {
	client, address := f.within(r)
	for _, p := range f.list(r) {
		ask := connect.NewRequest(&pb.SendSignalRequest{
			Process: &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: p.Pid}}, Signal: pb.Signal_SIGNAL_SIGKILL,
		})
		for name, v := range address {
			ask.Header()[name] = v
		}
		_, _ = client.SendSignal(r.Context(), ask) // it may have ended
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
		tagged := 0
		for _, p := range all {
			if p.Tag != nil {
				tagged++
			}
		}
		return now.OneTag && tagged > 1
	case *pb.ProcessSelector_Pid:
		for _, p := range all {
			if p.Pid == by.Pid {
				return false
			}
		}
		return now.DetachedOutput // its end was told
	}
	return false
}

// selector returns how a request names a process. The request can still be served. StreamInput is
// not looked at: it may never end.
func selector(r *http.Request) *pb.ProcessSelector {
	var m selecting
	switch r.URL.Path {
	case pb.ProcessConnectProcedure:
		m = &pb.ConnectRequest{}
	case pb.ProcessSendInputProcedure:
		m = &pb.SendInputRequest{}
	case pb.ProcessSendSignalProcedure:
		m = &pb.SendSignalRequest{}
	case pb.ProcessUpdateProcedure:
		m = &pb.UpdateRequest{}
	case pb.ProcessCloseStdinProcedure:
		m = &pb.CloseStdinRequest{}
	default:
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
