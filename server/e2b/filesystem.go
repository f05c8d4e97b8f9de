package e2b

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/execbroker/execbroker/executor"
	pb "github.com/execbroker/execbroker/internal/envd/filesystempb"
)

const (
	maxEntries  = 10_000 // of one listing or watch, all depths together
	maxWatchers = 32     // of a sandbox
	watchEvery  = 500 * time.Millisecond
)

// filesystemService is the service of files, over those of a session.
type filesystemService struct {
	b *sandbox

	mu       sync.Mutex
	watchers map[string]*watcher
}

var _ pb.FilesystemHandler = (*filesystemService)(nil)

// with calls f with the files of the session and the absolute name of a path, when it may.
func (s *filesystemService) with(ctx context.Context, name string, f func(files executor.Files, abs string) error) error {
	abs, err := s.b.absolute(name)
	if err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	give, err := take(ctx, s.b.contexts.one)
	if err != nil {
		return s.b.rpcError(err)
	}
	defer give()
	err = f(s.b.session.Files(), abs)
	if errors.As(err, new(*connect.Error)) {
		return err
	}
	return s.b.rpcError(err)
}

// entry describes a file. Sandboxes have one user.
func (b *sandbox) entry(abs string, i executor.FileInfo) *pb.EntryInfo {
	e := &pb.EntryInfo{
		Name: path.Base(abs), Type: pb.FileType_FILE_TYPE_FILE, Path: abs, Size: i.Size, Mode: uint32(i.Mode.Perm()), Permissions: i.Mode.String(),
		Owner: "user", Group: "user", ModifiedTime: timestamppb.New(i.ModTime),
	}
	switch {
	case i.Mode.IsRegular():
		e.Metadata = b.said.of(abs)
	case i.Mode.IsDir():
		e.Type = pb.FileType_FILE_TYPE_DIRECTORY
	case i.Target != "":
		to := i.Target
		if !path.IsAbs(to) { // envd says where it leads
			to = path.Join(path.Dir(abs), to)
		}
		e.Type, e.SymlinkTarget = pb.FileType_FILE_TYPE_SYMLINK, &to
	}
	return e
}

func (s *filesystemService) stat(ctx context.Context, name string) (e *pb.EntryInfo, err error) {
	err = s.with(ctx, name, func(files executor.Files, abs string) error {
		i, err := files.Stat(ctx, abs)
		e = s.b.entry(abs, i)
		return err
	})
	return e, err
}

func (s *filesystemService) Stat(ctx context.Context, r *connect.Request[pb.StatRequest]) (*connect.Response[pb.StatResponse], error) {
	e, err := s.stat(ctx, r.Msg.Path)
	return answerOr(&pb.StatResponse{Entry: e}, err)
}

// answerOr makes the answer of a call.
func answerOr[T any](m *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(m), nil
}

func (s *filesystemService) MakeDir(ctx context.Context, r *connect.Request[pb.MakeDirRequest]) (*connect.Response[pb.MakeDirResponse], error) {
	var e *pb.EntryInfo
	err := s.with(ctx, r.Msg.Path, func(files executor.Files, abs string) error { return files.Mkdir(ctx, abs) })
	if err == nil {
		e, err = s.stat(ctx, r.Msg.Path)
	}
	return answerOr(&pb.MakeDirResponse{Entry: e}, err)
}

func (s *filesystemService) Move(ctx context.Context, r *connect.Request[pb.MoveRequest]) (*connect.Response[pb.MoveResponse], error) {
	to, err := s.b.absolute(r.Msg.Destination)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	err = s.with(ctx, r.Msg.Source, func(files executor.Files, from string) error {
		err := files.Rename(ctx, from, to)
		if err == nil {
			s.b.said.move(from, to)
		}
		return err
	})
	var e *pb.EntryInfo
	if err == nil {
		e, err = s.stat(ctx, to)
	}
	return answerOr(&pb.MoveResponse{Entry: e}, err)
}

func (s *filesystemService) Remove(ctx context.Context, r *connect.Request[pb.RemoveRequest]) (*connect.Response[pb.RemoveResponse], error) {
	err := s.with(ctx, r.Msg.Path, func(files executor.Files, abs string) error {
		err := files.Remove(ctx, abs)
		if err == nil {
			s.b.said.remove(abs)
		}
		return err
	})
	return answerOr(&pb.RemoveResponse{}, err)
}

func (s *filesystemService) ListDir(ctx context.Context, r *connect.Request[pb.ListDirRequest]) (*connect.Response[pb.ListDirResponse], error) {
	entries, err := s.tree(ctx, r.Msg.Path, int(min(max(r.Msg.Depth, 1), maxEntries)))
	return answerOr(&pb.ListDirResponse{Entries: entries}, err)
}

// tree lists a directory and those below it, each before what is in it. Links are not followed.
func (s *filesystemService) tree(ctx context.Context, name string, depth int) (all []*pb.EntryInfo, err error) {
	err = s.with(ctx, name, func(files executor.Files, abs string) error {
		i, err := files.Stat(ctx, abs)
		if err != nil {
			return err
		}
		if !i.Mode.IsDir() {
			return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path %q is not a directory", abs))
		}
		var walk func(dir string, depth int) error
		walk = func(dir string, depth int) error {
			for i, err := range files.List(ctx, dir) {
				if err != nil {
					return err
				}
				if len(all) == maxEntries {
					return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("path %q has more than %d entries; list less of it", abs, maxEntries))
				}
				e := s.b.entry(path.Join(dir, i.Name), i)
				all = append(all, e)
				if i.Mode.IsDir() && depth > 1 {
					if err := walk(e.Path, depth-1); err != nil {
						return err
					}
				}
			}
			return nil
		}
		return walk(abs, depth)
	})
	return all, err
}
