package vminfod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vmsource"
	"rutter/log"
)

// Times of a Stream; those of vminfod's own clients.
const (
	defaultRetryEvery   = time.Second
	defaultReadyTimeout = 30 * time.Second
)

// StreamConfig configures a Stream. Client must be given; zeros mean the defaults.
type StreamConfig struct {
	// Client asks the vminfod that is followed.
	Client *Client
	// RetryEvery is the pause after the stream ended. Default 1 s.
	RetryEvery time.Duration
	// ReadyTimeout bounds the wait for the first line. Default 30 s.
	ReadyTimeout time.Duration
	// ScanEvery is how often the complete set is requested again, in case events missed
	// something. Default 5 min.
	ScanEvery time.Duration
	// Logger; nil discards.
	Logger *slog.Logger
}

// Stream is the source of VMs that another vminfod reports.
type Stream struct {
	cfg  StreamConfig
	scan chan struct{}

	mu      sync.Mutex // protects what follows
	status  vmsource.Status
	unknown int // of those aside: VMs that no source has
}

// NewStream returns a source that has started nothing.
func NewStream(cfg StreamConfig) (*Stream, error) {
	if cfg.Client == nil {
		return nil, errors.New("vminfo: no client: name the vminfod to follow")
	}
	cfg.RetryEvery = cmp.Or(cfg.RetryEvery, defaultRetryEvery)
	cfg.ReadyTimeout = cmp.Or(cfg.ReadyTimeout, defaultReadyTimeout)
	cfg.ScanEvery = cmp.Or(cfg.ScanEvery, vmsource.DefaultScanEvery)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Stream{cfg: cfg, scan: make(chan struct{}, 1)}
	s.status = vmsource.Status{Name: s.Name(), State: "stopped", Aside: []vmsource.Aside{}, Log: []vmsource.Refresh{}, Errors: []vmsource.Failure{}}
	return s, nil
}

// Name implements Source.
func (s *Stream) Name() string { return "vminfod " + s.cfg.Client.base }

// Scan implements Source.
func (s *Stream) Scan() {
	select {
	case s.scan <- struct{}{}:
	default: // a scan is requested already
	}
}

// Status implements Source.
func (s *Stream) Status() vmsource.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *Stream) update(change func(*vmsource.Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
}

// errScan ends a stream so that the next one begins with the complete set.
var errScan = errors.New("vminfo: the whole set is asked for")

// Run implements Source. The VMs stay as they were while the vminfod is away.
func (s *Stream) Run(ctx context.Context, sink vmsource.Sink) error {
	var place, before Position
	scanned := false
	for {
		err := s.follow(ctx, sink, &place, before, scanned)
		scanned = errors.Is(err, errScan)
		sink.Loaded() // do not wait for a vminfod that cannot be reached
		if ctx.Err() != nil {
			return nil
		}
		if scanned {
			before, place = place, Position{}
			continue
		}
		s.cfg.Logger.Warn("a vminfod's events ended", "vminfod", s.cfg.Client.base, "error", err)
		s.update(func(st *vmsource.Status) {
			st.State, st.Complete = "waiting: "+err.Error(), false
			st.Errors = vmsource.KeepLast(st.Errors, vmsource.Failure{Date: time.Now().UTC(), Err: err.Error()})
		})
		select {
		case <-time.After(s.cfg.RetryEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

// follow reads one stream until it ends. scanned means that it begins with a scan,
// after what was read up to before: a difference is then a missed event.
func (s *Stream) follow(ctx context.Context, sink vmsource.Sink, place *Position, before Position, scanned bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(s.cfg.ReadyTimeout, func() { cancel(fmt.Errorf("vminfo: no ready line: %w", vmdoc.ErrTimeout)) })
	defer late.Stop()
	events, err := s.cfg.Client.Events(ctx, *place)
	if err != nil {
		return because(ctx, err)
	}
	defer events.Close()
	late.Stop()
	if events.Limited {
		return ErrLimited // else NICs and owners would seem to be gone
	}
	if events.Ready.Type == "ready" {
		// With seqs, what came between the two streams was not missed.
		s.Load(sink, events.Ready, scanned && events.Ready.Log == before.Log && events.Ready.Seq == before.Seq)
	}
	*place = events.Position
	sink.Loaded()
	s.update(func(st *vmsource.Status) { st.State, st.Complete = "following", s.unknown == 0 })
	again := time.AfterFunc(s.cfg.ScanEvery, s.Scan)
	defer again.Stop()
	stop := make(chan struct{})
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer close(stop)
	waiting.Go(func() {
		select {
		case <-s.scan:
			cancel(errScan)
		case <-stop:
		}
	})
	for {
		m, err := events.Next()
		if err != nil {
			return because(ctx, err)
		}
		s.Take(sink, m)
		*place = events.Position
	}
}

// because returns why ctx ended, or otherwise err.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// Load makes the sink hold the VMs of a ready line.
func (s *Stream) Load(sink vmsource.Sink, ready Message, scanned bool) {
	began := time.Now()
	s.update(func(st *vmsource.Status) { st.Aside, s.unknown = []vmsource.Aside{}, 0 })
	var missed []vmsource.Missed
	here := make(map[log.UUID]bool, len(ready.VMs))
	for _, v := range ready.VMs {
		vm, err := vmdoc.ParseVM(v)
		if err != nil {
			s.putAside(v.Text("uuid"), err)
			continue
		}
		here[vm.UUID] = true
		changes, changed, err := sink.Put(vm)
		if err != nil {
			s.putAside(vm.UUID.String(), err)
		}
		if changed {
			missed = append(missed, vmsource.Missed{Zonename: vm.Zonename, Action: "modify", Changes: changes})
		}
	}
	for _, id := range sink.UUIDs() {
		if !here[id] && sink.Delete(id) {
			missed = append(missed, vmsource.Missed{Zonename: id.String(), Action: "delete"})
		}
	}
	s.update(func(st *vmsource.Status) {
		st.Scans++
		st.LastScan = began.UTC()
		if scanned && len(missed) > 0 {
			st.Missed += len(missed)
			st.Log = vmsource.KeepLast(st.Log, vmsource.Refresh{Date: began.UTC(), Took: vmsource.PrettySeconds(time.Since(began)), VMChanges: missed[:min(len(missed), vmsource.MaxMissed)]})
		}
	})
}

// Take applies a message to the sink.
func (s *Stream) Take(sink vmsource.Sink, m Message) {
	s.update(func(st *vmsource.Status) { st.Events++ })
	switch m.Type {
	case "create", "modify":
		vm, err := vmdoc.ParseVM(m.VM)
		if err == nil {
			_, _, err = sink.Put(vm)
		}
		if err != nil {
			s.putAside(m.UUID, err)
		}
	case "delete":
		id, err := m.idOf()
		if err != nil {
			s.putAside(m.UUID, err)
			return
		}
		sink.Delete(id)
		s.update(func(st *vmsource.Status) {
			st.Aside = slices.DeleteFunc(st.Aside, func(a vmsource.Aside) bool { return a.UUID == id })
		})
	}
}

func (s *Stream) putAside(name string, err error) {
	s.update(func(st *vmsource.Status) {
		if !errors.Is(err, vmsource.ErrDuplicate) && !errors.Is(err, vmsource.ErrZonename) {
			s.unknown++
		}
		known := slices.ContainsFunc(st.Aside, func(a vmsource.Aside) bool { return a.Name == name && a.Reason == err.Error() })
		if !known && len(st.Aside) < vmsource.MaxAside {
			id, _ := log.ParseUUID(name) // zero: not known
			st.Aside = append(st.Aside, vmsource.Aside{Name: name, UUID: id, Reason: err.Error(), Since: time.Now().UTC()})
		}
	})
}
