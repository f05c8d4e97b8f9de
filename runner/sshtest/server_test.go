package sshtest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os/exec"
	"sync"

	"golang.org/x/crypto/ssh"
)

// server is an SSH server on the loopback interface that executes commands as its own user. The
// processes outlive the connections that have asked for them, as those of a real server do.
type server struct {
	config ssh.ServerConfig
	at     net.Listener
	key    string // in the form of a line of known keys
	work   sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func listen() (*server, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, err
	}
	s := &server{config: ssh.ServerConfig{NoClientAuth: true}, conns: map[net.Conn]bool{}, key: string(ssh.MarshalAuthorizedKey(signer.PublicKey()))}
	s.config.AddHostKey(signer)
	if s.at, err = new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	s.work.Go(func() {
		for {
			c, err := s.at.Accept()
			if err != nil {
				return
			}
			s.work.Go(func() { s.serve(c) })
		}
	})
	return s, nil
}

// cut breaks every connection, as a network does.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

// Close ends the server and waits for what it has executed.
func (s *server) Close() error {
	err := s.at.Close()
	s.cut()
	s.work.Wait()
	return err
}

// serve answers one connection.
func (s *server) serve(c net.Conn) {
	s.mu.Lock()
	s.conns[c] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		c.Close()
	}()
	conn, channels, requests, err := ssh.NewServerConn(c, &s.config)
	if err != nil {
		return
	}
	defer conn.Close()
	go ssh.DiscardRequests(requests) // ends with the connection
	for nc := range channels {
		if nc.ChannelType() != "session" {
			nc.Reject(ssh.UnknownChannelType, "no session")
			continue
		}
		if ch, requests, err := nc.Accept(); err == nil {
			s.work.Go(func() { session(ch, requests) })
		}
	}
}

// session executes the first command that is asked for.
func session(ch ssh.Channel, requests <-chan *ssh.Request) {
	defer ch.Close()
	for r := range requests {
		var asked struct{ Command string }
		if r.Type != "exec" || ssh.Unmarshal(r.Payload, &asked) != nil {
			r.Reply(false, nil)
			continue
		}
		r.Reply(true, nil)
		var closed sync.WaitGroup
		closed.Go(func() { ssh.DiscardRequests(requests) })
		code := execute(ch, asked.Command)
		ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)}))
		ch.Close()
		closed.Wait()
		return
	}
}

// execute executes a command and returns its exit code.
func execute(ch ssh.Channel, command string) int {
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir, cmd.Stderr = "/", ch.Stderr()
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	stdin, ierr := cmd.StdinPipe()
	stdout, oerr := cmd.StdoutPipe()
	if errors.Join(ierr, oerr, cmd.Start()) != nil {
		return 255
	}
	go func() { // ends with the channel
		io.Copy(stdin, ch)
		stdin.Close()
	}()
	io.Copy(ch, stdout)
	stdout.Close()
	cmd.Wait()
	return cmd.ProcessState.ExitCode()
}
