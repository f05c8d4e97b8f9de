package e2b

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/execbroker/execbroker/internal/envd/filesystempb"
)

// watcher polls a directory for changes, because no backend reports them. A change that is undone
// between two polls is not seen.
type watcher struct {
	s       *filesystemService
	dir     string
	depth   int
	entries bool // are told of what there is

	mu   sync.Mutex
	seen map[string]look
}

// look is what tells one state of a file from another.
type look struct {
	size     int64
	mode     string
	modified time.Time
}

// watch begins to watch. Sandboxes have no network mounts, so clients that allow none need no
// check.
func (s *filesystemService) watch(ctx context.Context, dir string, recursive, entries bool) (*watcher, error) {
	abs, err := s.b.absolute(dir)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	w := &watcher{s: s, dir: abs, depth: 1, entries: entries}
	if recursive {
		w.depth = maxEntries
	}
	_, err = w.look(ctx)
	return w, err
}

// look returns what has changed since the last time, by name.
func (w *watcher) look(ctx context.Context) (events []*pb.FilesystemEvent, err error) {
	if w.s.b.isPaused() {
		return nil, nil // a look would wake it, and nothing changes
	}
	entries, err := w.s.tree(ctx, w.dir, w.depth)
	if err != nil {
		return nil, err
	}
	now := make(map[string]look, len(entries))
	told := map[string]*pb.EntryInfo{}
	for _, e := range entries {
		l := look{e.Size, e.Permissions, e.ModifiedTime.AsTime()}
		if e.Type == pb.FileType_FILE_TYPE_DIRECTORY {
			l = look{mode: l.mode} // what is in it changes the others
		}
		name := strings.TrimPrefix(strings.TrimPrefix(e.Path, w.dir), "/")
		now[name] = l
		if w.entries {
			told[name] = e
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	add := func(name string, t pb.EventType) {
		events = append(events, &pb.FilesystemEvent{Name: name, Type: t, Entry: told[name]})
	}
	for name, l := range now {
		switch before, ok := w.seen[name]; {
		case w.seen == nil:
		case !ok:
			add(name, pb.EventType_EVENT_TYPE_CREATE)
			if l.size > 0 {
				add(name, pb.EventType_EVENT_TYPE_WRITE) // as of a file that was opened and then written
			}
		case before.size != l.size || !before.modified.Equal(l.modified):
			add(name, pb.EventType_EVENT_TYPE_WRITE)
		case before.mode != l.mode:
			add(name, pb.EventType_EVENT_TYPE_CHMOD)
		}
	}
	for name := range w.seen {
		if _, ok := now[name]; !ok {
			add(name, pb.EventType_EVENT_TYPE_REMOVE)
		}
	}
	w.seen = now
	slices.SortStableFunc(events, func(a, b *pb.FilesystemEvent) int { return strings.Compare(a.Name, b.Name) })
	return events, nil
}

func (s *filesystemService) WatchDir(ctx context.Context, r *connect.Request[pb.WatchDirRequest], out *connect.ServerStream[pb.WatchDirResponse]) error {
	w, err := s.watch(ctx, r.Msg.Path, r.Msg.Recursive, r.Msg.IncludeEntry)
	if err != nil {
		return err
	}
	if err := out.Send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Start{Start: &pb.WatchDirResponse_StartEvent{}}}); err != nil {
		return err
	}
	poll := time.NewTicker(watchEvery)
	defer poll.Stop()
	keepalive := time.NewTicker(ping(r.Header()))
	defer keepalive.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.b.rpcError(ctx.Err())
		case <-keepalive.C:
			if err := out.Send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Keepalive{Keepalive: &pb.WatchDirResponse_KeepAlive{}}}); err != nil {
				return err
			}
		case <-poll.C:
			events, err := w.look(ctx)
			if err != nil {
				return err
			}
			for _, e := range events {
				if err := out.Send(&pb.WatchDirResponse{Event: &pb.WatchDirResponse_Filesystem{Filesystem: e}}); err != nil {
					return err
				}
			}
		}
	}
}

func (s *filesystemService) CreateWatcher(ctx context.Context, r *connect.Request[pb.CreateWatcherRequest]) (*connect.Response[pb.CreateWatcherResponse], error) {
	w, err := s.watch(ctx, r.Msg.Path, r.Msg.Recursive, r.Msg.IncludeEntry)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watchers) >= maxWatchers {
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("too many watchers; remove one first"))
	}
	id := newToken()
	s.watchers[id] = w
	return connect.NewResponse(&pb.CreateWatcherResponse{WatcherId: id}), nil
}

func (s *filesystemService) GetWatcherEvents(ctx context.Context, r *connect.Request[pb.GetWatcherEventsRequest]) (*connect.Response[pb.GetWatcherEventsResponse], error) {
	s.mu.Lock()
	w := s.watchers[r.Msg.WatcherId]
	s.mu.Unlock()
	if w == nil {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("there is no such watcher"))
	}
	events, err := w.look(ctx)
	return answerOr(&pb.GetWatcherEventsResponse{Events: events}, err)
}

func (s *filesystemService) RemoveWatcher(_ context.Context, r *connect.Request[pb.RemoveWatcherRequest]) (*connect.Response[pb.RemoveWatcherResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, r.Msg.WatcherId)
	return connect.NewResponse(&pb.RemoveWatcherResponse{}), nil
}
