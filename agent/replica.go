package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
	"rutter/projections/desired"
)

// errStream is wrapped when a server's message cannot be true. The connection is
// closed; nothing of the message was taken.
var errStream = errors.New("agent: the stream cannot be right")

// maxPending bounds the frames of one incomplete change: each entry may bring a CN's
// underlay record with it.
const maxPending = 2 * log.MaxOps

// replica is this CN's part of the log's state, in memory, and the rows that the cache
// must still save. One goroutine, the follower's, changes it; readers run beside it.
//
// Three rules say what is held (SAFETY F1 to F3). An object is taken if it is newer, by
// the seq of its last event, than the held one. It stays while a held scope contains
// it. Absence from a list deletes an object only if the list is a complete scope.
type replica struct {
	cn     log.UUID
	logger *slog.Logger
	// changed holds a token when readers have something new to look at; dirtied, when
	// the cache has something to save.
	changed, dirtied chan struct{}

	mu     sync.RWMutex // protects what follows; held for one change at a time
	state  *projections.State
	scopes heldScopes
	// cursor is the last bookmark. What belongs to an entry without being in it (a
	// scope, a neighbour's underlay NIC) follows the entry, so a feed cannot resume
	// between two bookmarks.
	cursor log.Cursor
	// folded is the last entry that was taken, at or after the cursor. If it comes
	// again, on the next connection, it is skipped.
	folded log.Seq
	// cluster is the cluster whose log the connection follows. Until it equals the
	// cursor's, only a reset may follow.
	cluster log.UUID
	head    log.Seq // of the server, as last received
	// applied is the last bookmark: everything up to it is known. It is 0
	// until the first bookmark after the start or a reset.
	applied log.Seq
	// programmed is the highest applied seq that the kernel matched. It is never stored
	// (SAFETY B1).
	programmed log.Seq
	// reached is at least programmed: the kernel matched the log there except for waits,
	// the list with the number list, if that is not 0 (see setReached).
	reached log.Seq
	waits   []feed.Wait
	list    uint32
	// epoch counts the resets: a seq of another epoch may be of another log.
	epoch uint64
	// complete: all that the CN must know was held at least once (architecture rule 8).
	complete bool
	// interestKnown is false after a change of something that interest depends on.
	interestKnown bool
	reset         *resetting     // nil unless a reset runs
	incoming      *incomingScope // nil unless a scope's objects are coming
	pending       []feed.Message // of an incomplete change
	pendingLast   log.Seq        // of that change
	outbox        *outbox        // rows that the cache must save
	objects       int            // held
	resets        uint64         // begun in this process
	lastReset     feed.ResetReason
	suspects      map[log.Scope]*suspect // see replica_digest.go
	requests      []feed.Again           // not sent yet
	mismatches    uint32                 // scopes that became suspect in this process
	checked       log.Seq                // the last bookmark whose digests were all equal; 0: none, or one differs
	// missing says why the last bookmark did not count, or is empty.
	missing string
	clashes clashTable
	journal journal          // see changes.go
	answers *answerLog       // see answerlog.go; immutable after load
	touches *desired.Touches // what the kernel has not got yet
	touched time.Time        // when the oldest of them was applied; zero: there are none
	view    viewHold         // what of a view is held back
}

// resetting is a reset that runs: the objects and scopes that came since its begin.
// Everything else that is held is from before, and is removed at the end.
type resetting struct {
	reason  feed.ResetReason
	objects map[objectKey]struct{}
	scopes  map[log.Scope]struct{}
}

// incomingScope is a scope between its begin and end.
type incomingScope struct {
	scope log.Scope
	asOf  log.Seq
	seen  map[objectKey]struct{}
}

func newReplica(me log.UUID, logger *slog.Logger) *replica {
	r := &replica{
		cn: me, logger: logger,
		changed: make(chan struct{}, 1), dirtied: make(chan struct{}, 1),
		state: projections.NewSmallState(), scopes: make(heldScopes), suspects: make(map[log.Scope]*suspect),
		outbox: &outbox{dirty: newBatch(), ready: newBatch()}, touches: desired.NewTouches(me),
	}
	r.clashes = clashTable{state: r.state, touches: r.touches, pairs: make(map[objectKey]map[objectKey]struct{})}
	r.view = viewHold{cn: me, logger: logger, state: r.state, touches: r.touches, outbox: r.outbox, changed: r.changed, dirtied: r.dirtied}
	r.view.complete = func() bool { return r.complete }
	r.view.inReset = func() bool { return r.reset != nil }
	r.view.noteMove = r.noteMove
	return r
}

// load puts what the cache held. Objects that came only with a scope without an end are
// dropped, because which part of it they are is unknown.
func (r *replica) load(held *contents) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range held.Objects {
		if err := r.state.Load(rec); err != nil {
			return fmt.Errorf("%w: %w", errFile, err)
		}
		r.objects++
	}
	r.answers = held.answers
	r.journal = newJournal(held.Head.Incarnation, held.Gone)
	r.journal.addGone(held.Answered)
	r.outbox.dirty.Gone = append(r.outbox.dirty.Gone, r.journal.gone[len(held.Gone):]...)
	r.answers.begin(r.journal.pos)
	r.cursor, r.complete = held.Head.Cursor, held.Head.Complete
	r.view.load(held)
	r.folded, r.outbox.ready.Head = r.cursor.Seq, held.Head
	r.outbox.ready.Head.Complete = r.view.isCompleteToKeep(r.complete)
	for scope, s := range held.Scopes {
		if s.Complete {
			r.scopes[scope] = s
		} else {
			r.outbox.dirty.Scopes[scope] = nil
		}
	}
	for _, rec := range held.Objects {
		if key := keyOf(rec); !r.holds(key) {
			r.drop(key)
		}
	}
	return nil
}

func newResetting(reason feed.ResetReason) *resetting {
	return &resetting{reason: reason, objects: make(map[objectKey]struct{}), scopes: make(map[log.Scope]struct{})}
}

// resumePoint returns what a server must know to continue from here. During a reset
// nothing is reported, because what is held comes from two logs.
func (r *replica) resumePoint() (log.Cursor, []feed.HeldScope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending, r.incoming = nil, nil
	if r.reset != nil {
		return log.Cursor{}, nil
	}
	for scope, held := range r.scopes {
		if !held.Complete {
			r.dropScope(scope) // the connection ended within it
		}
	}
	return r.cursor, r.scopes.sorted()
}

// Welcome takes the first message of a connection. Without a cursor, a reset begins
// whether the server sends one or not: also if the connection before ended within one.
// What that had brought, and is gone since, does not come again.
func (r *replica) Welcome(m *feed.Welcome) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.head, r.cluster = m.Head.Seq, m.Head.Cluster
	switch {
	case r.reset != nil:
		r.beginReset(r.reset.reason)
	case r.cursor == (log.Cursor{}):
		r.beginReset(feed.ResetFirst)
	}
	if r.reset != nil {
		r.cursor = log.Cursor{Cluster: r.cluster}
	}
	return nil
}

// Reset begins a reset: what is held stays until its end.
func (r *replica) Reset(m *feed.Reset) error {
	old := r.remember()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.view.becomeUnjudged(old, r.cursor)
	r.head = m.Head
	r.beginReset(m.Reason)
	return nil
}

func (r *replica) beginReset(reason feed.ResetReason) {
	if r.reset == nil {
		r.resets++
	}
	r.lastReset = reason
	r.reset = newResetting(reason)
	r.pending, r.incoming = nil, nil
	r.cursor, r.folded = log.Cursor{Cluster: r.cluster}, 0
	r.applied, r.programmed, r.reached, r.checked = 0, 0, 0, 0
	r.epoch++
	r.touches.NoteWhole()
	r.notify()
}

// sameLog refuses what may only be in the log of the cursor.
func (r *replica) sameLog(what string, seq log.Seq) error {
	if r.cursor.Cluster != r.cluster {
		return fmt.Errorf("%w: %s at %d is of cluster %s, the cursor is of %s, and no reset came between", errStream, what, seq, r.cluster, r.cursor.Cluster)
	}
	return nil
}

// ScopeBegin takes the begin of a scope. A scope that is held already stays complete,
// and its objects are compared at the end.
func (r *replica) ScopeBegin(m *feed.ScopeBegin) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.sameLog("scope", m.AsOf); err != nil {
		return err
	}
	r.incoming = &incomingScope{scope: m.Scope, asOf: m.AsOf, seen: make(map[objectKey]struct{})}
	if held := r.scopes[m.Scope]; !held.Complete {
		r.setScope(m.Scope, heldScope{AsOf: m.AsOf})
	}
	return nil
}

// Object takes one object: of a scope that is being sent, or one that entered a scope
// without an event of its own.
func (r *replica) Object(m *feed.Object) error {
	object, body, err := log.DecodeObjectAndBody(m.Kind, m.ID, m.Bytes)
	if err != nil {
		return fmt.Errorf("object %s %s: %w", m.Kind, m.ID, err)
	}
	if object.ID() != m.ID || m.ID == "" {
		return fmt.Errorf("%w: object %s %q calls itself %q", errStream, m.Kind, m.ID, object.ID())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.incoming == nil && len(r.pending) > 0 {
		return r.hold(m)
	}
	return r.object(m, object, body)
}

func (r *replica) object(m *feed.Object, object log.Object, body []byte) error {
	rec := projections.Record{Object: object, Revision: m.Revision, Seq: m.Seq}
	key := keyOf(rec)
	if r.incoming != nil {
		r.incoming.seen[key] = struct{}{}
	}
	before, known := r.state.Find(object)
	// A suspect scope that is sent replaces everything that is held of it, whatever its seq.
	suspect := r.incoming != nil && r.suspects[r.incoming.scope] != nil
	if known && !suspect && r.isOld(key, before, m.Seq) {
		return nil
	}
	if err := r.put(key, before.Object, kept{rec, body}); err != nil {
		return err
	}
	if r.incoming == nil && !r.holds(key) {
		r.drop(key)
	}
	return nil
}

// isOld reports whether the held object is at least as new as seq. During a reset an
// older seq is ignored, because it may be of another log.
func (r *replica) isOld(key objectKey, known projections.Record, seq log.Seq) bool {
	if r.reset != nil {
		if _, confirmed := r.reset.objects[key]; !confirmed {
			return false
		}
	}
	return known.Seq >= seq
}

// ScopeEnd completes a scope: objects that it did not bring leave it.
func (r *replica) ScopeEnd(m *feed.ScopeEnd) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	coming := r.incoming
	if coming == nil || coming.scope != m.Scope {
		return fmt.Errorf("%w: end of scope %s, which did not begin", errStream, m.Scope)
	}
	r.incoming = nil
	if !isSteady(r) {
		r.touches.NoteWhole()
	}
	r.setScope(m.Scope, heldScope{AsOf: m.AsOf, Complete: true})
	if r.reset != nil {
		r.reset.scopes[m.Scope] = struct{}{}
		return nil // the end of the reset removes what did not come
	}
	var gone []objectKey
	_, all := r.suspects[m.Scope]
	for rec := range r.state.InScope(m.Scope) {
		key := keyOf(rec)
		if _, seen := coming.seen[key]; !seen && (all || rec.Seq <= m.AsOf && !r.scopes.contain(r.state, key, m.Scope)) {
			gone = append(gone, key)
		}
	}
	for _, key := range gone {
		r.drop(key)
	}
	r.notify()
	return nil
}

// ScopeDropped forgets a scope.
func (r *replica) ScopeDropped(m *feed.ScopeDropped) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropScope(m.Scope)
	r.notify()
	return nil
}

// dropScope forgets a scope and the objects that only it held. During a reset its
// objects stay until the end.
func (r *replica) dropScope(scope log.Scope) {
	if _, held := r.scopes[scope]; !held {
		return
	}
	delete(r.scopes, scope)
	r.outbox.dirty.Scopes[scope] = nil
	r.interestKnown = false
	if !isSteady(r) {
		r.touches.NoteWhole()
	}
	if r.reset != nil {
		return
	}
	var gone []objectKey
	for rec := range r.state.InScope(scope) {
		if key := keyOf(rec); !r.holds(key) {
			gone = append(gone, key)
		}
	}
	for _, key := range gone {
		r.drop(key)
	}
}

// Bookmark: everything up to m.Seq is known.
func (r *replica) Bookmark(m *feed.Bookmark) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.sameLog("bookmark", m.Seq); err != nil {
		return err
	}
	if r.incoming != nil {
		return fmt.Errorf("%w: a bookmark within scope %s", errStream, r.incoming.scope)
	}
	if err := r.flush(); err != nil {
		return err
	}
	r.cursor.Seq, r.cursor.Chain, r.folded = m.Seq, m.Chain, m.Seq
	r.head = max(r.head, m.Seq)
	if r.reset != nil {
		r.endReset()
	}
	if r.knowsInterest() && r.verify(m) {
		if !r.complete {
			r.touches.NoteWhole() // from now on removals are allowed
		}
		r.applied, r.complete = m.Seq, true
	}
	r.makeReady()
	r.notify()
	return nil
}

// endReset forgets what the reset did not bring.
func (r *replica) endReset() {
	ended := r.reset
	r.reset = nil
	r.touches.NoteWhole()
	for scope := range r.scopes {
		if _, came := ended.scopes[scope]; !came {
			delete(r.scopes, scope)
			r.outbox.dirty.Scopes[scope] = nil
		}
	}
	var gone []objectKey
	for kind := range maxKind {
		for rec := range r.state.List(log.Kind(kind)) {
			if key := keyOf(rec); !ended.has(key) {
				gone = append(gone, key)
			}
		}
	}
	for _, key := range gone {
		r.drop(key)
	}
	r.clashes.refreshAll()
	r.interestKnown = false
	r.logger.Info("reset ended", "objects", r.objects, "forgotten", len(gone), "scopes", len(r.scopes))
}

// maxKind is one more than the highest kind.
const maxKind = 256

func (e *resetting) has(key objectKey) bool {
	_, ok := e.objects[key]
	return ok
}

// knowsInterest reports whether all that the CN must know is held. A server sends it
// before the bookmark. If it does not, nothing counts as applied.
func (r *replica) knowsInterest() bool {
	if r.interestKnown {
		return true
	}
	missing := r.missingInterest()
	if missing != "" && missing != r.missing {
		r.logger.Warn("a bookmark came without everything that this compute node must know: it does not count", "missing", missing)
	}
	r.missing, r.interestKnown = missing, missing == ""
	return r.interestKnown
}

func (r *replica) missingInterest() string {
	for _, scope := range r.state.Interest(r.cn) {
		if !r.scopes[scope].Complete {
			return "scope " + scope.String()
		}
	}
	for rec := range r.state.NICsOnCN(r.cn) {
		nic := rec.Object.(*log.NIC)
		if _, known := r.state.Get(log.KindNetwork, nic.NetworkUUID.String()); !known && !nic.NetworkUUID.IsZero() {
			return "network " + nic.NetworkUUID.String() + " of NIC " + nic.ID()
		}
	}
	return ""
}

// at returns the cursor's seq.
func (r *replica) at() log.Seq {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.cursor.Seq
}

// inReset reports whether a reset runs.
func (r *replica) inReset() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.reset != nil
}

func (r *replica) status(s *Status) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	s.Cursor, s.Head, s.Applied, s.Programmed, s.Reached = r.cursor, r.head, r.applied, r.programmed, r.reached
	if r.head > r.cursor.Seq {
		s.Lag = uint64(r.head - r.cursor.Seq)
	}
	s.Resets, s.Missing = r.resets, r.missing
	s.Checked, s.Mismatches = r.checked, r.mismatches
	s.Scopes = make([]ScopeStatus, 0, len(r.scopes))
	for _, held := range r.scopes.sorted() {
		s.Scopes = append(s.Scopes, ScopeStatus{held.Scope, held.AsOf, r.scopes[held.Scope].Complete})
	}
	for kind := range maxKind {
		if n := r.state.Count(log.Kind(kind)); n > 0 {
			s.Objects[log.Kind(kind).String()] = n
		}
	}
}
