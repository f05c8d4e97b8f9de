//go:build unix

package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
)

// listenPrivate listens at a Unix socket that only this user can connect to. It is made in a
// directory that nobody else can enter, and moved to its name when it has its rights, so there is
// no moment at which others could connect.
func listenPrivate(ctx context.Context, file string) (net.Listener, error) {
	if _, err := os.Lstat(file); err == nil { // as bind would: a server may be there
		return nil, &net.OpError{Op: "listen", Net: "unix", Addr: &net.UnixAddr{Name: file, Net: "unix"}, Err: os.ErrExist}
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), ".s")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "s")
	l, err := new(net.ListenConfig).Listen(ctx, "unix", made)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // it has another name then
	err = os.Chmod(made, 0o600)
	if err == nil {
		err = os.Rename(made, file)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return &privateListener{l, file}, nil
}

// privateListener has the name that its socket was given.
type privateListener struct {
	net.Listener
	file string
}

func (l *privateListener) Addr() net.Addr { return &net.UnixAddr{Name: l.file, Net: "unix"} }

// Close closes the socket and removes its file.
func (l *privateListener) Close() error {
	err := l.Listener.Close()
	if err == nil {
		os.Remove(l.file)
	}
	return err
}
