package feed

import "rutter/log"

// Message is the content of a frame: one of the types of this file. Append writes it,
// Decode reads it.
type Message interface {
	// frame returns the type and the seq of the frame's header.
	frame() (Type, log.Seq)
	// write appends the payload, read parses it.
	write(w *payloadWriter)
	read(seq log.Seq, r *payloadReader)
}

// Entry is one entry of the log, as the server stored it.
type Entry struct {
	Seq   log.Seq
	Chain log.ChainPrefix // of the chain hash at Seq
	Event []byte          // as encoded once, at apply: log.DecodeEvent reads it

	// Parsed and Body are what log.DecodeEventAndBody makes of Event, once Parse
	// was called. They are not part of the frame.
	Parsed *log.Event
	Body   []byte
}

// Parse decodes the event, unless that was done.
func (m *Entry) Parse() (err error) {
	if m.Parsed == nil {
		m.Parsed, m.Body, err = log.DecodeEventAndBody(m.Event)
	}
	return err
}

// Object is one object as of a seq of the log. It belongs to a scope that is being
// added (between ScopeBegin and ScopeEnd), or it comes alone: it entered a scope
// without an event of its own, as the underlay NIC of a CN does when the first NIC of
// that CN comes onto a vnet (SAFETY F1). It leaves the scope without an event too: the
// subscriber must forget it at the entry by which the last NIC of that CN leaves the
// vnets that it holds, because no later entry about it is sent.
type Object struct {
	At       log.Seq // the position in the stream
	Scope    log.Scope
	Kind     log.Kind
	ID       string
	Revision log.Revision
	Seq      log.Seq // of its last event, at most At; a newer object that is held stays (SAFETY F2)
	Bytes    []byte  // log.DecodeObject reads them
}

// ScopeBegin says that Count objects of Scope as of AsOf follow, and then ScopeEnd.
// They replace what the subscriber had of that scope.
type ScopeBegin struct {
	Scope log.Scope
	AsOf  log.Seq
	Count uint32
}

// ScopeEnd completes a scope. Only now may objects that did not come be deleted (SAFETY
// F3).
type ScopeEnd struct {
	Scope log.Scope
	AsOf  log.Seq
	Chain log.ChainPrefix // of the chain hash at AsOf
	Count uint32          // as in ScopeBegin
}

// ScopeDropped says that the subscriber is no longer interested in Scope. It must
// forget objects that are in no other held scope at once, because no further entry
// about them is sent.
type ScopeDropped struct {
	Scope log.Scope
	At    log.Seq
}

// Bookmark says that everything up to Seq was sent. It never stands between two events
// of a change. A cursor must be that of a bookmark, because some messages belong to an
// entry and come after it, before the next bookmark: objects that entered a scope, and
// scopes that are dropped.
type Bookmark struct {
	Seq   log.Seq
	Chain log.ChainPrefix // of the chain hash at Seq
	// Digests are those of the scopes that the subscriber holds, at Seq. Often there
	// are none, because the server computes them only when its state is exactly at Seq.
	// A subscriber that computes another digest asks for that scope with Again.
	Digests []ScopeDigest
}

// ScopeDigest is the digest over the objects of a scope.
type ScopeDigest struct {
	Scope  log.Scope
	Digest log.Digest
}

// ResetReason is why a cursor cannot be used. The numbers are on the wire.
type ResetReason uint8

// The reasons of a reset.
const (
	ResetOtherLog  ResetReason = 1 // the cursor's cluster or chain is not this log's
	ResetAhead     ResetReason = 2 // the cursor is beyond the log's head
	ResetCompacted ResetReason = 3 // the log no longer keeps what follows the cursor
	ResetCorrupt   ResetReason = 4 // the server cannot serve the entries behind the cursor
	ResetFirst     ResetReason = 5 // there is no cursor yet; a server may omit it, because the hello shows it
)

// String names the reason.
func (r ResetReason) String() string {
	switch r {
	case ResetOtherLog:
		return "other log"
	case ResetAhead:
		return "ahead"
	case ResetCompacted:
		return "compacted"
	case ResetCorrupt:
		return "corrupt"
	case ResetFirst:
		return "first"
	}
	return "unknown reason"
}

// Reset says that entries cannot follow the subscriber's cursor. Every scope of its
// interest follows as of Head, each with ScopeBegin and ScopeEnd, then the drops of
// scopes that it held, then a bookmark at Head. The subscriber compares what comes with
// what it has. It deletes nothing before the end of a scope.
type Reset struct {
	Head   log.Seq
	Reason ResetReason
	Text   string // for people
}

// DrainReason is why a server ends a stream. The numbers are on the wire.
type DrainReason uint8

// The reasons of a drain.
const (
	DrainShutdown DrainReason = 1 // the server stops: go to another at once
	DrainBehind   DrainReason = 2 // the server has not applied the cursor yet: go to another
	DrainReplaced DrainReason = 3 // a newer session of the same CN is here
	DrainRefused  DrainReason = 4 // the hello cannot be served: the text says why
	DrainFailed   DrainReason = 5 // the server could not read its own log
	DrainBusy     DrainReason = 6 // the server sends its maximum of whole scopes: try again later, or another server
	// DrainDisbelieved: a watermark is impossible, such as one with a seq that was not
	// sent to this subscriber. The server ignores it. The text says what is wrong.
	DrainDisbelieved DrainReason = 7
)

// String names the reason.
func (r DrainReason) String() string {
	switch r {
	case DrainShutdown:
		return "shutdown"
	case DrainBehind:
		return "behind"
	case DrainReplaced:
		return "replaced"
	case DrainRefused:
		return "refused"
	case DrainFailed:
		return "failed"
	case DrainBusy:
		return "busy"
	case DrainDisbelieved:
		return "disbelieved"
	}
	return "unknown reason"
}

// Drain is the last frame of a stream that the server ends.
type Drain struct {
	At     log.Seq
	Reason DrainReason
	Text   string // for people
}

// Welcome is the first frame down: which log this is.
type Welcome struct {
	Version uint16
	Head    log.Cursor // of the server, when it read the hello
	// Knows is the newest feature version that the server's program knows; 0: that of a
	// program of before this field. The CN sends it only fields that such a program knows.
	Knows uint32
}

// Pong answers a Ping.
type Pong struct{ Head log.Seq }

// Tell asks for watermarks at once, because a client waits until this subscriber has
// programmed Seq. Until then the subscriber sends each watermark that differs from the
// last as soon as it is known. Otherwise it sends one every TellLazily.
type Tell struct{ Seq log.Seq }

// HeldScope is a scope that a subscriber holds completely.
type HeldScope struct {
	Scope log.Scope
	AsOf  log.Seq // AsOf of its ScopeEnd; the cursor may be before it (SAFETY F2)
}

// Hello is the first frame up.
type Hello struct {
	Version     uint16 // Append writes it; 0 means this program's
	CN          log.UUID
	Incarnation uint64     // of the agent's process; only grows
	Session     uint64     // of this connection within the incarnation; only grows
	Cursor      log.Cursor // zero: nothing is known yet
	Scopes      []HeldScope
	Abilities   Abilities // what the CN accepts besides the stream
}

// Watermark is how far a CN is. It is soft state, kept with the session.
type Watermark struct {
	Applied    log.Seq // the cache is at this seq
	Programmed log.Seq // the kernel matches the log at this seq; 0 is unknown
	Objects    uint32  // objects in the cache
	Links      uint32  // links that are ours
	Neighbours uint32  // neighbour entries that are ours
	FDB        uint32  // forwarding entries that are ours
	Failing    uint32  // steps that the kernel refused and that wait for a retry
	Healed     uint64  // differences found and mended since the process began

	// Log is the log that Applied and Programmed are of; without it they count
	// for nothing (SAFETY B1). Its Seq is not carried: it is Applied.
	Log        log.Cursor
	Checked    log.Seq     // the last bookmark whose digests were all equal; 0: none yet, or one differed since
	Mismatches uint32      // digests that differed since the process began
	Resets     uint32      // since the process began
	LastReset  ResetReason // 0: none
	Drift      string      // what was repaired last (see Healed), one on each line; at most 64 KiB

	// Reached is at least Programmed: the kernel matches the log here, except for the
	// objects of the list List (SAFETY L2). List is the number of that list; 0: there is
	// none, and only Programmed counts. Waits has the list if Listed; if not, it is the
	// list of that number that was sent before on this connection.
	Reached log.Seq
	List    uint32
	Listed  bool
	Waits   []Wait // at most MaxWaits
}

// Far is the seq that the CN has reached, up to which only objects of its list wait.
func (m *Watermark) Far() log.Seq { return max(m.Programmed, m.Reached) }

// Again asks for a scope anew, because its digest differs. Its objects follow as if the
// scope was new, and replace what is held. Nothing else is sent again.
type Again struct {
	At    log.Seq // of the bookmark whose digest differed
	Scope log.Scope
}

// Report carries what an agent reports; this package does not look inside.
type Report struct{ Bytes []byte }

// Ping asks for a Pong, so that a dead connection is noticed.
type Ping struct{}

func (m *Entry) frame() (Type, log.Seq)        { return TypeEntry, m.Seq }
func (m *Object) frame() (Type, log.Seq)       { return TypeObject, m.At }
func (m *ScopeBegin) frame() (Type, log.Seq)   { return TypeScopeBegin, m.AsOf }
func (m *ScopeEnd) frame() (Type, log.Seq)     { return TypeScopeEnd, m.AsOf }
func (m *ScopeDropped) frame() (Type, log.Seq) { return TypeScopeDropped, m.At }
func (m *Bookmark) frame() (Type, log.Seq)     { return TypeBookmark, m.Seq }
func (m *Reset) frame() (Type, log.Seq)        { return TypeReset, m.Head }
func (m *Drain) frame() (Type, log.Seq)        { return TypeDrain, m.At }
func (m *Welcome) frame() (Type, log.Seq)      { return TypeWelcome, m.Head.Seq }
func (m *Pong) frame() (Type, log.Seq)         { return TypePong, m.Head }
func (m *Tell) frame() (Type, log.Seq)         { return TypeTell, m.Seq }
func (m *Hello) frame() (Type, log.Seq)        { return TypeHello, m.Cursor.Seq }
func (m *Watermark) frame() (Type, log.Seq)    { return TypeWatermark, m.Applied }
func (*Report) frame() (Type, log.Seq)         { return TypeReport, 0 }
func (m *Again) frame() (Type, log.Seq)        { return TypeAgain, m.At }
func (m *Request) frame() (Type, log.Seq)      { return TypeRequest, log.Seq(m.Number) }
func (m *Response) frame() (Type, log.Seq)     { return TypeResponse, log.Seq(m.Number) }
func (*Ring) frame() (Type, log.Seq)           { return TypeRing, 0 }
func (m *Inventory) frame() (Type, log.Seq)    { return TypeInventory, log.Seq(m.Number) }
func (*Ping) frame() (Type, log.Seq)           { return TypePing, 0 }

// newMessage returns an empty message of type t, or nil if t is not known.
func newMessage(t Type) Message {
	switch t {
	case TypeEntry:
		return new(Entry)
	case TypeObject:
		return new(Object)
	case TypeScopeBegin:
		return new(ScopeBegin)
	case TypeScopeEnd:
		return new(ScopeEnd)
	case TypeScopeDropped:
		return new(ScopeDropped)
	case TypeBookmark:
		return new(Bookmark)
	case TypeReset:
		return new(Reset)
	case TypeDrain:
		return new(Drain)
	case TypeWelcome:
		return new(Welcome)
	case TypePong:
		return new(Pong)
	case TypeTell:
		return new(Tell)
	case TypeHello:
		return new(Hello)
	case TypeWatermark:
		return new(Watermark)
	case TypeReport:
		return new(Report)
	case TypePing:
		return new(Ping)
	case TypeAgain:
		return new(Again)
	case TypeRequest:
		return new(Request)
	case TypeResponse:
		return new(Response)
	case TypeRing:
		return new(Ring)
	case TypeInventory:
		return new(Inventory)
	case TypeCondition:
		return new(Condition)
	}
	return nil
}
