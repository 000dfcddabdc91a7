package registered

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vmsource"
	"rutter/log"
	"rutter/projections"
)

// Servers writes to the log with the node's certificate.
type Servers interface {
	// Submit writes a change. The same change may be submitted again: it is done once. A
	// refusal is a *log.Refusal. With wait above 0 it returns when the kernels of all nodes
	// that the change concerns have it, else a *PendingError after that time.
	Submit(ctx context.Context, change *log.Change, wait time.Duration) (log.Result, error)
	// Network returns the UUID of the network of that name, as far as this node may see it.
	Network(ctx context.Context, name string) (log.UUID, error)
	// HasVM reports whether the log has a VM on this node now.
	HasVM(ctx context.Context, id log.UUID) (bool, error)
	// NIC returns a NIC as the log has it now, nil if it has none that this node may see.
	NIC(ctx context.Context, mac log.MAC) (*log.NIC, error)
}

// PendingError: a change is written, and some kernels do not have it yet.
type PendingError struct{ Message string }

// Error implements error.
func (e *PendingError) Error() string { return e.Message }

// Node is what a source needs to know of its node. Its methods may be called from any
// goroutine.
type Node interface {
	// View calls fn with this node's part of the log. fn must not keep the state.
	View(fn func(state *projections.State))
	// Waits returns the seq up to which this node's kernel has the log but for objects that
	// wait, and those of a VM: by the MAC of the NIC, with the reason. idle are those that
	// wait only because the VM is not to run.
	Waits(vm log.UUID) (reached log.Seq, waits map[log.MAC]string, idle map[log.MAC]bool)
	// Attaching says that Source.Attachments changed. at are those of NICs that the log is
	// about to have. When it returns, the node knows.
	Attaching(at map[log.MAC]vmdoc.Attach)
	// Holder returns the name of the source that has a VM, "" if none has.
	Holder(vm log.UUID) string
	// ZoneHolder returns the VM that has a zonename, and its source; "": none has it.
	ZoneHolder(zone string) (vm log.UUID, source string)
	// Ended says that a VM is no longer to run because its own program stopped it: failure is
	// "" unless it ended by itself, with an error.
	Ended(vm log.UUID, failure string)
}

// Config configures a Source. All fields except Control, Refers and Logger must be given.
type Config struct {
	// Name names the source: IsName.
	Name string
	// Folder keeps a file for each VM. It is made if it is not there.
	Folder string
	// CN is the compute node.
	CN      log.UUID
	Node    Node
	Servers Servers
	// NewID makes ids of changes: UUIDs of version 7.
	NewID func() log.UUID
	// Control starts and stops the VMs; nil: the program that registers them does.
	Control vmsource.Control
	// Refers says what to do where Control is nil, as in "use podman stop".
	Refers string
	// RetryMin and RetryMax bound the pause between two tries to tell the log. Defaults
	// 250 ms and 15 s.
	RetryMin, RetryMax time.Duration
	// DeleteWithin is how long a DELETE waits for the log, without which it succeeds too.
	// Default 2 s.
	DeleteWithin time.Duration
	// Logger; nil discards.
	Logger *slog.Logger
}

// IsName reports whether a source may have the name: 1 to 32 lower-case letters, digits
// and '-'.
func IsName(name string) bool { return sourceName.MatchString(name) }

var sourceName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// Source is a source of VMs that programs of the node register. Its methods may be called
// from any goroutine, Run once at a time.
type Source struct {
	cfg   Config
	woken chan struct{} // holds a token when Run is to look at the VMs
	moved atomic.Bool   // the log was read on since the VMs were shown

	// disk is held by who changes records, also while a file is written: taken before mu. A
	// disk that hangs holds up those who write, not those who read.
	disk sync.Mutex
	// save writes a record's file, as a whole or not at all, and onto the disk.
	save func(r *record) error

	mu  sync.Mutex // protects what follows
	vms map[log.UUID]*entry
	ops map[log.UUID]*opLock // of the VMs of which the log is asked now
	bad []vmsource.Aside     // damaged files
	// nameless: a damaged file does not say which VM it is about.
	nameless bool
	aside    map[log.UUID]vmsource.Aside
	status   vmsource.Status
}

// entry is one VM.
type entry struct {
	*record      // not changed in place: replaced by keepLocked
	shown   bool // it was in the sink
}

func newEntry(r *record) *entry {
	return &entry{record: r}
}

// New reads the folder, and starts nothing.
func New(cfg Config) (*Source, error) {
	switch {
	case !IsName(cfg.Name):
		return nil, fmt.Errorf("registered: %q cannot be the name of a source: want 1 to 32 lower-case letters, digits and '-'", cfg.Name)
	case cfg.Folder == "" || cfg.CN.IsZero() || cfg.Node == nil || cfg.Servers == nil || cfg.NewID == nil:
		return nil, errors.New("registered: a source needs its folder, compute node, log, servers and ids")
	}
	cfg.RetryMin, cfg.RetryMax = cmp.Or(cfg.RetryMin, 250*time.Millisecond), cmp.Or(cfg.RetryMax, 15*time.Second)
	cfg.DeleteWithin = cmp.Or(cfg.DeleteWithin, deleteWithin)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Source{cfg: cfg, woken: make(chan struct{}, 1), vms: make(map[log.UUID]*entry), ops: make(map[log.UUID]*opLock), aside: make(map[log.UUID]vmsource.Aside)}
	s.status = vmsource.Status{Name: cfg.Name, State: "stopped", Log: []vmsource.Refresh{}, Errors: []vmsource.Failure{}}
	s.save = s.saveFile
	return s, s.load()
}

// Name implements vmsource.Source.
func (s *Source) Name() string { return s.cfg.Name }

// Scan implements vmsource.Source.
func (s *Source) Scan() { s.Wake() }

// Advanced says that this node's part of the log changed.
func (s *Source) Advanced() { s.moved.Store(true) }

// Wake says that a VM, or the connection to the servers, may have changed.
func (s *Source) Wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// Control implements vmsource.Controlled.
func (s *Source) Control() (vmsource.Control, error) {
	if s.cfg.Control == nil {
		return nil, fmt.Errorf("%w: the program that registered it as %s does that: %s", vmsource.ErrNoControl, s.cfg.Name, cmp.Or(s.cfg.Refers, "ask that one (rutter vm delete removes a registration whose program is gone)"))
	}
	return s.cfg.Control, nil
}

// Status implements vmsource.Source.
func (s *Source) Status() vmsource.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status
	st.Aside = append([]vmsource.Aside{}, s.bad...)
	for _, a := range s.aside {
		st.Aside = append(st.Aside, a)
	}
	slices.SortFunc(st.Aside, func(a, b vmsource.Aside) int { return cmp.Compare(a.Name, b.Name) })
	st.Complete, st.Listed = st.Complete && !s.nameless, st.Listed && !s.nameless
	for _, e := range s.vms {
		if e.unsettled() {
			st.Waiting++
		}
	}
	if st.Complete && st.Waiting > 0 {
		st.State = fmt.Sprintf("%s; %d VMs of which the log is not told yet", st.State, st.Waiting)
	}
	return st
}

// How often the VMs are shown anew at most.
const (
	refreshEvery = 20 * time.Millisecond // because one of them changed
	followEvery  = time.Second           // because the log did
)

// Run implements vmsource.Source.
func (s *Source) Run(ctx context.Context, sink vmsource.Sink) error {
	s.refresh(sink)
	s.mu.Lock()
	s.status.State, s.status.Complete = "registered by programs of this node", true
	s.status.Listed = true // as the files are, also where their program does not answer
	s.mu.Unlock()
	sink.Loaded()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.status.State, s.status.Complete = "stopped", false
	}()
	var telling sync.WaitGroup
	defer telling.Wait()
	told := make(chan struct{}, 1)
	telling.Go(func() { s.tellAlways(ctx, told) })
	scan := time.NewTicker(vmsource.DefaultScanEvery)
	defer scan.Stop()
	follow := time.NewTicker(followEvery)
	defer follow.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.woken:
		case <-follow.C:
			if !s.moved.Swap(false) {
				continue
			}
		case <-scan.C:
			s.mu.Lock()
			s.status.Scans++
			s.status.LastScan = time.Now().UTC()
			s.mu.Unlock()
		}
		s.refresh(sink)
		select {
		case told <- struct{}{}:
		default:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(refreshEvery):
		}
	}
}

// refresh makes the sink hold the VMs as they are now.
func (s *Source) refresh(sink vmsource.Sink) {
	s.mu.Lock()
	list := make([]*entry, 0, len(s.vms))
	for _, e := range s.vms {
		list = append(list, e)
	}
	s.mu.Unlock()
	here, shows := make(map[log.UUID]bool, len(list)), make([]func(), 0, len(list))
	for _, e := range list {
		s.mu.Lock()
		r, shown := e.record, e.shown
		s.mu.Unlock()
		// A VM that the log knows was shown once, so that its end is reported too.
		if r.Leaving && (shown || !r.Known) {
			continue
		}
		if r.asked() && !shown {
			continue // the log may have it on another node
		}
		here[r.UUID] = !r.Leaving
		shows = append(shows, func() { s.show(sink, e, r) })
	}
	for _, id := range sink.UUIDs() { // first, so that their zonenames are free
		if _, is := here[id]; !is {
			sink.Delete(id)
		}
	}
	for _, show := range shows {
		show()
	}
	for id, stays := range here {
		if !stays {
			sink.Delete(id) // it was shown once, so that its end is reported
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.aside {
		if e := s.vms[id]; e == nil || e.Leaving {
			delete(s.aside, id)
		}
	}
}

// show puts one VM into the sink. One that another source has is put aside.
func (s *Source) show(sink vmsource.Sink, e *entry, r *record) {
	vm, err := vmdoc.ParseVM(s.document(r))
	if err == nil {
		_, _, err = sink.Put(vm)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		e.shown = true
		delete(s.aside, r.UUID)
		return
	}
	if _, known := s.aside[r.UUID]; !known && len(s.aside) < vmsource.MaxAside {
		s.aside[r.UUID] = vmsource.Aside{Name: r.UUID.String(), UUID: r.UUID, Reason: err.Error(), Since: time.Now().UTC()}
		s.cfg.Logger.Warn("a registered VM is put aside", "source", s.cfg.Name, "vm", r.UUID, "reason", err)
	}
}

// keepLocked writes a record to disk, and replaces the one of an entry. Both locks are held;
// mu is let go while the file is written.
func (s *Source) keepLocked(e *entry, r *record) error {
	s.mu.Unlock()
	err := s.save(r)
	s.mu.Lock()
	if err != nil {
		return err
	}
	e.record = r
	return nil
}
