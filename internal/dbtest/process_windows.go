package dbtest

import "syscall"

// Freeze skips the test: processes cannot be stopped here.
func (s *Server) Freeze() { s.tb.Skip("processes cannot be stopped on Windows") }

// Thaw does nothing.
func (s *Server) Thaw() {}

func (s *Server) unprivileged() *syscall.SysProcAttr { return nil }
