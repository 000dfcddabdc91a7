package vmstore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vmsource"
	"rutter/log"
)

// Errors of a Store about one reader's position or one VM; the store itself works.
var (
	// ErrLost: the events after the reader's position are not kept any more. The reader
	// must begin again with the complete set.
	ErrLost = errors.New("vminfo: these events are not kept any more")
	// ErrAhead: the position is after the last event, so it is of another store.
	ErrAhead = errors.New("vminfo: a place after the last event")
)

// Bounds of the events that a store keeps for its readers: a slow reader may be that
// far behind.
const (
	defaultEvents     = 8192
	defaultEventBytes = 16 << 20
)

// Event is one change of the set of VMs. It is not changed once made.
type Event struct {
	Seq  uint64 // dense, from 1
	Type string // create, modify or delete
	UUID log.UUID
	Line []byte // as in the stream, with its newline
	// Public is the line for clients that see the public fields only; empty if none of
	// these changed.
	Public []byte
}

// size is how many bytes an event counts for Config.EventBytes.
func (e Event) size() int { return len(e.Line) + len(e.Public) }

// Config bounds a Store. Zeros mean the defaults.
type Config struct {
	Events     int              // kept; default 8192
	EventBytes int              // kept of both lines; default 16 MiB. One event is kept, however large it is
	Now        func() time.Time // default time.Now
}

// Store is the set of VMs of a compute node with its last events. Its methods
// may be called from any goroutine.
type Store struct {
	Cfg Config
	id  string // of this sequence of events: positions in it are valid only here

	mu      sync.RWMutex // protects what follows
	vms     map[log.UUID]record
	zones   map[string]log.UUID // the VMs by zonename
	live    bool                // changes are events
	events  []Event             // the last of them, by seq
	bytes   int                 // of their lines
	seq     uint64              // of the last
	changed chan struct{}
	// contested are the VMs that further sources have.
	contested map[log.UUID]bool
	// left are the sources that let VMs go which none has since, at most maxLeft.
	left     map[log.UUID]string
	released func() // called after one of contested was let go; without the lock
}

type record struct {
	vm     vmdoc.VM
	source string
}

// New returns an empty store. Before GoLive, changes make no events.
func New(cfg Config) *Store {
	if cfg.Events == 0 {
		cfg.Events = defaultEvents
	}
	if cfg.EventBytes == 0 {
		cfg.EventBytes = defaultEventBytes
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Store{Cfg: cfg, id: NewID(), vms: make(map[log.UUID]record), zones: make(map[string]log.UUID), changed: make(chan struct{}), contested: make(map[log.UUID]bool), left: make(map[log.UUID]string)}
}

// RandomUUID returns a random UUID (version 4).
func RandomUUID() (u log.UUID) {
	_, _ = rand.Read(u[:]) // never fails
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return u
}

// NewID returns a random UUID (version 4) as text.
func NewID() string { return RandomUUID().String() }

// ID names this store's events. It differs for each store and each process.
func (s *Store) ID() string { return s.id }

// GoLive ends the loading: from then on each change is an event.
func (s *Store) GoLive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = true
}

// Put stores a VM. It returns what changed: nil and false if nothing did. vmsource.ErrDuplicate:
// another source has the VM, which stays as it is. vmsource.ErrZonename: another VM has its
// zonename, so that the two would share their links.
func (s *Store) Put(source string, vm vmdoc.VM) ([]vmdoc.Change, bool, error) {
	changes, changed, released, err := s.put(source, vm)
	if released != nil {
		released()
	}
	return changes, changed, err
}

// put is Put, and returns what is to be called if a zonename is free that another VM wants.
func (s *Store) put(source string, vm vmdoc.VM) (changes []vmdoc.Change, changed bool, released func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.vms[vm.UUID]
	if known && before.source != source {
		s.contested[vm.UUID] = true
		return nil, false, nil, fmt.Errorf("%w: %s has %s", vmsource.ErrDuplicate, before.source, vm.UUID)
	}
	if other, taken := s.zones[vm.Zonename]; taken && other != vm.UUID {
		s.contested[other] = true
		return nil, false, nil, fmt.Errorf("%w: %s is that of VM %s of %s: give one of them another", vmsource.ErrZonename, vm.Zonename, other, s.vms[other].source)
	}
	if known && string(before.vm.JSON) == string(vm.JSON) {
		return nil, false, nil, nil
	}
	value := parsed(vm)
	vm.Public = value.Public().AppendJSON(nil)
	kind := "create"
	if known {
		if changes = changesOf(parsed(before.vm), value); len(changes) == 0 {
			s.vms[vm.UUID] = record{vm, source}
			return nil, false, nil, nil
		}
		kind = "modify"
	}
	if known && before.vm.Zonename != vm.Zonename {
		delete(s.zones, before.vm.Zonename)
		if s.contested[vm.UUID] {
			released = s.released
		}
	}
	s.vms[vm.UUID] = record{vm, source}
	if vm.Zonename != "" {
		s.zones[vm.Zonename] = vm.UUID
	}
	delete(s.left, vm.UUID)
	s.record(kind, vm, changes)
	return changes, true, released, nil
}

// ZoneHolder returns the VM that has a zonename, and its source; "": none has it.
func (s *Store) ZoneHolder(zone string) (vm log.UUID, source string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	vm, taken := s.zones[zone]
	if !taken {
		return vm, ""
	}
	return vm, s.vms[vm].source
}

// changesOf compares two states of a VM. A new time of the last change alone is not a
// change, as in vminfod.
func changesOf(from, to vmdoc.Value) []vmdoc.Change {
	return slices.DeleteFunc(vmdoc.Diff(from, to, vmdoc.Idents), func(c vmdoc.Change) bool {
		return len(c.Path) > 0 && c.Path[0].Name == vmdoc.LastModified
	})
}

func parsed(vm vmdoc.VM) vmdoc.Value {
	v, err := vmdoc.ParseValue(vm.JSON)
	if err != nil {
		panic("vminfo: a VM that is not JSON was stored")
	}
	return v
}

// Delete removes a VM of a source, and returns whether it was there.
func (s *Store) Delete(source string, id log.UUID) bool {
	gone, released := s.delete(source, id)
	if released != nil {
		released()
	}
	return gone
}

// delete is Delete, and returns what is to be called if a further source has the VM.
func (s *Store) delete(source string, id log.UUID) (gone bool, released func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.vms[id]
	if !known || before.source != source {
		return false, nil
	}
	delete(s.vms, id)
	if s.zones[before.vm.Zonename] == id {
		delete(s.zones, before.vm.Zonename)
	}
	if len(s.left) >= maxLeft {
		clear(s.left) // then of those it is not known
	}
	s.left[id] = source
	s.record("delete", before.vm, nil)
	if s.contested[id] {
		delete(s.contested, id)
		return true, s.released
	}
	return true, nil
}

// OnReleased sets what is called after a source let a VM go that another one has too. It is
// set before the first change.
func (s *Store) OnReleased(fn func()) { s.released = fn }

// Holder returns the name of the source that has a VM; "": none.
func (s *Store) Holder(id log.UUID) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.vms[id].source
}

// maxLeft bounds the VMs that no source has, of which the store knows the last one.
const maxLeft = 1 << 16

// Last returns the name of the source that had a VM last, "" if that is not known, and
// whether one has it now.
func (s *Store) Last(id log.UUID) (has bool, source string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if h, here := s.vms[id]; here {
		return true, h.source
	}
	return false, s.left[id]
}

// UUIDs lists the VMs of a source, in order.
func (s *Store) UUIDs(source string) []log.UUID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var ids []log.UUID
	for id, h := range s.vms {
		if h.source == source {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, CompareUUID)
	return ids
}

// CompareUUID orders UUIDs by their bytes.
func CompareUUID(a, b log.UUID) int { return slices.Compare(a[:], b[:]) }

// record makes an event. The lock is held.
func (s *Store) record(kind string, vm vmdoc.VM, changes []vmdoc.Change) {
	if !s.live {
		return
	}
	s.seq++
	event := Event{Seq: s.seq, Type: kind, UUID: vm.UUID}
	now := s.Cfg.Now()
	event.Line = eventLine(s.seq, kind, now, vm, changes)
	public := vmdoc.PublicChanges(changes)
	if kind != "modify" || len(public) > 0 {
		vm.JSON = vm.Public
		event.Public = eventLine(s.seq, kind, now, vm, public)
	}
	s.events = append(s.events, event)
	s.bytes += event.size()
	drop := 0
	for len(s.events)-drop > s.Cfg.Events || s.bytes > s.Cfg.EventBytes && drop < len(s.events)-1 {
		s.bytes -= s.events[drop].size()
		s.events[drop] = Event{} // so that the array does not keep it
		drop++
	}
	s.events = s.events[drop:]
	close(s.changed)
	s.changed = make(chan struct{})
}

// eventLine is an event as vminfod writes it (spec/vminfod.md, 5.2), with the seq after
// everything that an old client reads.
func eventLine(seq uint64, kind string, now time.Time, vm vmdoc.VM, changes []vmdoc.Change) []byte {
	b := make([]byte, 0, len(vm.JSON)+64*len(changes)+256)
	b = append(append(b, `{"type":"`...), kind...)
	b = append(append(b, `","date":"`...), vmdoc.FormatDate(now)...)
	b = vmdoc.AppendString(append(b, `","zonename":`...), vm.Zonename)
	b = vmdoc.AppendString(append(b, `,"uuid":`...), vm.UUID.String())
	if kind != "delete" {
		b = append(append(b, `,"vm":`...), vm.JSON...)
	}
	if kind == "modify" {
		b = vmdoc.AppendChanges(append(b, `,"changes":`...), changes)
	}
	return fmt.Appendf(b, ",\"seq\":%d}\n", seq)
}

// Get returns a VM by its UUID.
func (s *Store) Get(id log.UUID) (vmdoc.VM, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	h, ok := s.vms[id]
	return h.vm, ok
}

// From returns a VM with the name of its source.
func (s *Store) From(id log.UUID) (vm vmdoc.VM, source string, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	h, ok := s.vms[id]
	return h.vm, h.source, ok
}

// Find returns a VM by its zonename or its UUID, in text.
func (s *Store) Find(name string) (vmdoc.VM, bool) {
	if id, err := log.ParseUUID(name); err == nil {
		if vm, ok := s.Get(id); ok {
			return vm, true
		}
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, h := range s.vms {
		if h.vm.Zonename == name {
			return h.vm, true
		}
	}
	return vmdoc.VM{}, false
}

// List returns every VM by UUID, and the seq of the last event that they
// include.
func (s *Store) List() ([]vmdoc.VM, uint64) {
	s.mu.RLock()
	vms, seq := make([]vmdoc.VM, 0, len(s.vms)), s.seq
	for _, h := range s.vms {
		vms = append(vms, h.vm)
	}
	s.mu.RUnlock()
	slices.SortFunc(vms, func(a, b vmdoc.VM) int { return CompareUUID(a.UUID, b.UUID) })
	return vms, seq
}

// Count returns how many VMs there are.
func (s *Store) Count() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.vms)
}

// Since returns at most most events after seq, and a channel that is closed when the
// store gets another event. Errors: ErrLost, ErrAhead.
func (s *Store) Since(seq uint64, most int) ([]Event, <-chan struct{}, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	floor := s.seq - uint64(len(s.events))
	switch {
	case seq < floor:
		return nil, nil, fmt.Errorf("%w: the events after %d are asked for, the first kept is %d", ErrLost, seq, floor+1)
	case seq > s.seq:
		return nil, nil, fmt.Errorf("%w: %d, and the last event is %d", ErrAhead, seq, s.seq)
	}
	after := s.events[seq-floor:]
	return slices.Clone(after[:min(len(after), most)]), s.changed, nil
}

// Kept returns how many events are kept for readers, their bytes, and the seq of the
// last one.
func (s *Store) Kept() (events, bytes int, seq uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.events), s.bytes, s.seq
}

// EventBatch is how many events are taken from the store at once.
const EventBatch = 128
