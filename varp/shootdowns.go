package varp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rutter/log"
)

// ShootdownConfig configures Shootdowns. Zero means the default that is named with each
// field.
type ShootdownConfig struct {
	// Source is the change log; Changes replaces it on an agent. Exactly one of the two
	// is required.
	Source  Source
	Changes ChangeSource

	// Past is how many of the log's last entries are read at the start, and at most
	// after a long time without requests. Default 65,536: minutes of a busy cloud, read
	// in 0.1 s. Older changes are taken from the rows of the state, which do not show
	// mappings that no longer exist.
	Past int

	// MaxMappings bounds the mappings whose last change is remembered. Default 131,072,
	// about 20 MB.
	MaxMappings int

	// MaxNodes bounds the underlay addresses whose position in the log is remembered;
	// beyond it, the one that asked longest ago starts again. Default 16,384, more
	// nodes than one log serves. A node that acknowledges its records takes a few
	// hundred bytes and some for each vnet; one that never does, 10 KB.
	MaxNodes int

	// Now tells the time. Only differences of its values count. Default: time.Now.
	Now func() time.Time

	// Logger gets the error when the log or the file of places cannot be read. Default:
	// none.
	Logger *slog.Logger
}

func (c ShootdownConfig) withDefaults() ShootdownConfig {
	if c.Past == 0 {
		c.Past = 65536
	}
	if c.MaxMappings == 0 {
		c.MaxMappings = 131072
	}
	if c.MaxNodes == 0 {
		c.MaxNodes = 16384
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c ShootdownConfig) check() error {
	switch {
	case (c.Source == nil) == (c.Changes == nil):
		return errors.New("varp: ShootdownConfig wants Source, the change log, or Changes in its place, and not both")
	case c.Past < 0, c.MaxMappings < 0, c.MaxNodes < 0:
		return errors.New("varp: ShootdownConfig has a negative bound: want a positive one, or 0 for the default")
	}
	return nil
}

// Shootdowns is an EventLog that is a view of the change log: it stores nothing for a
// node and a change. For each underlay address that asked, it remembers its position on
// each of its vnets, and the records that were delivered and not acknowledged.
//
// News comes first, the newest before all. A node whose place is unknown gets again what
// it may have missed: the last entries of the log, then every row of its vnets. The same
// applies to a node that joins a vnet, and to one that was away for so long that the
// log from its place on is no longer known. This costs nothing before the node asks,
// and never delays what is new. Places outlive a server: see Sharing.
//
// Its methods may be called from any goroutine; they hold one lock, and a call
// after a long silence reads up to ShootdownConfig.Past entries.
type Shootdowns struct {
	cfg   ShootdownConfig // immutable
	state State           // immutable: Source or Changes
	began atomic.Bool     // lookups are answered; set while mu is held

	mu    sync.Mutex         // protects what follows
	log   log.UUID           // the cluster whose log the index is of
	index *invalidationIndex // nil before the first request
	// chain is that of Source's log at index.seq, if chainKnown: a server that was
	// rebuilt has other entries under the same seqs.
	chain           log.ChainPrefix
	chainKnown      bool
	underlayChanges uint64 // counts changes of underlay NICs, and gaps
	requests        uint64 // counts requests
	readers         map[netip.Addr]*logReader
	scratch         []invalidation // buffer for those of one event

	self  string      // of Sharing
	noted log.Cursor  // the head, when what was applied was noted last
	known knownPlaces // of nodes that did not ask here, or not yet
}

// NewShootdowns returns a view of the log of cfg.Source, or an error that names the
// field of cfg that is missing or invalid. It reads nothing yet.
func NewShootdowns(cfg ShootdownConfig) (*Shootdowns, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Shootdowns{cfg: cfg.withDefaults(), state: cfg.Source, readers: make(map[netip.Addr]*logReader)}
	s.known = newKnownPlaces()
	if cfg.Changes != nil {
		s.state = cfg.Changes
	}
	return s, nil
}

// Events implements EventLog.
func (s *Shootdowns) Events(dst []Record, cn netip.Addr, maxBytes int) ([]Record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.catchUp(); err != nil {
		s.cfg.Logger.Error("SVP: the log cannot be read for shootdowns", "error", err)
		return dst, false
	}
	s.beginLocked()
	s.adoptFile()
	s.requests++
	s.state.View(func(rows Rows) {
		if r := s.readerOf(cn, rows); r != nil {
			vnets := r.fill(s.index, rows, s.known.of(cn, r.nodes))
			var newest log.Seq
			dst, newest = r.deliver(dst, maxBytes, s.index, rows, vnets)
			s.delivered(r, newest)
		}
	})
	return dst, true
}

// Remove implements EventLog. It accepts only ids that this process delivered, and
// keeps the others for the server that delivered them: illumos asks its servers in
// turn. An id from another server comes again from this one, unless this server knows
// that its answers were right.
func (s *Shootdowns) Remove(cn netip.Addr, ids []log.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.readers[cn]
	if r == nil {
		known := false
		s.state.View(func(rows Rows) { known = len(rows.Nodes(cn)) > 0 })
		if known {
			s.known.keep(cn, ids, s.cfg.Now())
		}
		return true
	}
	others := r.others(ids)
	if r.acknowledge(ids) > 0 {
		s.touch(r)
	}
	s.known.keep(cn, others, s.cfg.Now())
	return true
}

// catchUp notes what was applied since the last call.
func (s *Shootdowns) catchUp() error {
	head := s.state.Head()
	if s.cfg.Changes != nil {
		s.catchUpChanges(head)
		return nil
	}
	past := log.Seq(s.cfg.Past)
	oldest := max(head.Seq, past) - past
	s.begin(head, oldest)
	if s.chainKnown && s.index.seq == head.Seq && s.chain != head.Chain {
		s.restart(head, oldest)
	}
	if s.index.seq < oldest {
		if _, err := s.following(1); err != nil {
			s.forgetPlaces() // it may be another log: its acknowledgements are not valid
		}
		s.index.skipTo(oldest)
		s.chainKnown = false
		s.underlayChanges++
	}
	for s.index.seq < head.Seq {
		entries, err := s.following(entryBatch)
		switch {
		case errors.Is(err, log.ErrCompacted):
			s.forgetPlaces() // as above
			s.index.skipTo(head.Seq)
			s.chain, s.chainKnown = head.Chain, true
			s.underlayChanges++
			return nil
		case errors.Is(err, log.ErrOtherLog):
			s.restart(head, oldest)
			continue
		case err != nil:
			return err
		case len(entries) == 0:
			s.index.seq, s.chain, s.chainKnown = head.Seq, head.Chain, true
		}
		if err := s.noteAll(entries); err != nil {
			return err
		}
	}
	return nil
}

// following reads entries of Source that follow the index. log.ErrOtherLog: its log is
// not the one of the index.
func (s *Shootdowns) following(limit int) ([]log.Entry, error) {
	entries, err := s.cfg.Source.Entries(s.index.seq, limit)
	if err != nil || !s.chainKnown {
		return entries, err
	}
	return entries, hasEntry(s.cfg.Source, s.index.seq, s.chain)
}

// begin starts with an empty index if there is none yet, or if it is of another log.
func (s *Shootdowns) begin(head log.Cursor, oldest log.Seq) {
	if s.index != nil && s.log == head.Cluster && s.index.seq <= head.Seq {
		return
	}
	s.restart(head, oldest)
}

// restart begins again, and reports everything to every node.
func (s *Shootdowns) restart(head log.Cursor, oldest log.Seq) {
	first := s.index == nil
	s.log, s.index, s.chainKnown = head.Cluster, newInvalidationIndex(s.cfg.MaxMappings, oldest), false
	s.underlayChanges++
	if first {
		return // what is known of clients was read for this log
	}
	s.forgetPlaces()
}

// forgetPlaces forgets what clients have acknowledged.
func (s *Shootdowns) forgetPlaces() {
	clear(s.readers)
	s.known.forget(s.cfg.Now())
}

// catchUpChanges is catchUp where there are no entries.
func (s *Shootdowns) catchUpChanges(head log.Cursor) {
	s.begin(head, 0)
	for s.index.seq < head.Seq {
		changes, gap := s.cfg.Changes.Changes(s.index.seq, entryBatch)
		if gap {
			s.index.leaveOut()
			s.underlayChanges++
		}
		if len(changes) == 0 {
			s.index.seq = head.Seq
			return
		}
		s.state.View(func(rows Rows) {
			for _, c := range changes {
				s.scratch = changeInvalidations(s.scratch[:0], c, rows)
				s.note(c.Seq, c.Was.OfServer || c.Is.OfServer)
			}
			s.index.trim(rows)
		})
	}
}

// note puts s.scratch, which is of seq, into the index. moved: the location of a
// compute node may have changed.
func (s *Shootdowns) note(seq log.Seq, moved bool) {
	for _, shot := range s.scratch {
		s.index.note(shot)
	}
	if moved {
		s.underlayChanges++
	}
	s.index.seq = seq
}

// noteAll notes the invalidations of entries, which follow the earlier ones.
func (s *Shootdowns) noteAll(entries []log.Entry) (err error) {
	events := make([]*log.Event, len(entries))
	for i, entry := range entries {
		if events[i], err = entry.Event(); err != nil {
			return fmt.Errorf("seq %d: %w", entry.Seq, err)
		}
	}
	s.state.View(func(rows Rows) {
		for i, e := range events {
			if s.scratch, err = invalidationsOf(s.scratch[:0], entries[i].Seq, e, rows); err != nil {
				return
			}
			nic, ok := e.Object.(*log.NIC)
			s.note(entries[i].Seq, ok && nic.BelongsToType == "server")
			s.chain, s.chainKnown = entries[i].Hash.Prefix(), true
		}
		s.index.trim(rows)
	})
	return err
}

// readerOf returns the state of the node with this underlay address, or nil if no node
// has the address.
func (s *Shootdowns) readerOf(cn netip.Addr, rows Rows) *logReader {
	r := s.readers[cn]
	if r == nil || r.moves != s.underlayChanges {
		nodes := rows.Nodes(cn)
		if len(nodes) == 0 {
			delete(s.readers, cn)
			return nil
		}
		if r != nil && !slices.Equal(r.nodes, nodes) {
			delete(s.readers, cn) // the address is another node's now
			r = nil
		}
		if r == nil {
			s.makeRoom()
			r = &logReader{vnets: make(map[uint32]*vnetReading)}
			s.readers[cn] = r
		}
		r.nodes, r.moves = nodes, s.underlayChanges
	}
	r.tick = s.requests
	return r
}

// makeRoom forgets the node that asked longest ago if there are too many.
func (s *Shootdowns) makeRoom() {
	if len(s.readers) < s.cfg.MaxNodes {
		return
	}
	var oldest netip.Addr
	for cn, r := range s.readers {
		if !oldest.IsValid() || r.tick < s.readers[oldest].tick {
			oldest = cn
		}
	}
	s.known.put(s.readers[oldest].place(oldest), s.cfg.MaxNodes)
	delete(s.readers, oldest)
}

// ShootdownStats are the current sizes of Shootdowns.
type ShootdownStats struct {
	Nodes    int     // underlay addresses with a known position
	Pending  int     // records not acknowledged, of all of them; more may follow
	Mappings int     // whose last change is remembered
	Seq      log.Seq // read up to here, at the last request
}

// Stats returns what is held now. It may be called at any time.
func (s *Shootdowns) Stats() ShootdownStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := ShootdownStats{Nodes: len(s.readers)}
	for _, r := range s.readers {
		st.Pending += len(r.pending)
	}
	if s.index != nil {
		st.Mappings, st.Seq = len(s.index.held), s.index.seq
	}
	return st
}
