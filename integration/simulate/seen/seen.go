// Package seen is what is observed of a simulated cluster: a plain log of records, each with
// its time, who observed it, and one event. Package world writes it, package oracle judges it.
// It decides nothing itself.
package seen

import (
	"net/netip"
	"sync"
	"time"

	"rutter/integration/simulate/history"
	"rutter/log"
)

// Record is one observation.
type Record struct {
	N     int           // its place in the log, from 0
	At    time.Duration // since the cluster served first; negative: before
	Who   string        // the server, agent or client that observed it, or that it is about
	Event Event
}

// Event is one of this package's types below, by value.
type Event interface{ event() }

// Log is a log of records. The zero value is ready. Its methods may be called from any
// goroutine.
type Log struct {
	mu      sync.Mutex
	begun   time.Time
	records []Record
	watch   []func(Record)
}

// Begin sets the time from which At counts: records from before keep what they have.
func (l *Log) Begin(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun = at
}

// Watch calls fn for each record from now on, in order, under the log's lock: fn must not call
// the log, and must not block.
func (l *Log) Watch(fn func(Record)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watch = append(l.watch, fn)
}

// Add adds a record, of now.
func (l *Log) Add(who string, e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Record{N: len(l.records), Who: who, Event: e, At: l.since(time.Now())}
	l.records = append(l.records, r)
	for _, fn := range l.watch {
		fn(r)
	}
}

// Since is a time in the form of Record.At.
func (l *Log) Since(at time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since(at)
}

func (l *Log) since(at time.Time) time.Duration {
	if l.begun.IsZero() {
		return -1
	}
	return at.Sub(l.begun)
}

// Records are those so far. They must not be changed.
func (l *Log) Records() []Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.records[:len(l.records):len(l.records)]
}

// Outcome is what a client knows of its write.
type Outcome string

// Outcomes. With Unknown the write may have been done, or may still be done.
const (
	Accepted Outcome = "accepted"
	Refused  Outcome = "refused"
	Unknown  Outcome = "unknown"
	// NotTaken: the server said that nothing was written (overloaded, no room).
	NotTaken Outcome = "not taken"
)

// Write is a write whose client has an outcome. The same change may have several: a client
// that does not know the outcome may send it again.
type Write struct {
	Surface     string // changes, stream, objects
	Change      log.Change
	From, Until time.Duration // the call
	Outcome     Outcome
	Result      log.Result // if accepted
	Refusal     *log.Refusal
	Err         string
}

// WriteBegun is a write that is about to be sent.
type WriteBegun struct {
	Surface string
	Change  log.Change
}

// Read is an answer to a read of one object.
type Read struct {
	Server      string // "" : any
	Kind        log.Kind
	ID          string
	Mode        string // local, consistent, min_seq
	MinSeq      log.Seq
	From, Until time.Duration
	Found       bool
	Revision    log.Revision // 0: not found
	Object      map[string]any
	Seq         log.Seq // Rutter-Seq of the answer; 0: unknown
	Err         string  // no answer
}

// StreamBegun is a subscriber that begins or goes on. A stream that goes on after an error has
// the same name.
type StreamBegun struct {
	Stream string // its name
	Kind   string // entries, log, changefeed
	Filter string // the query; "": all. Of a compute node: cn=UUID
	After  log.Cursor
	// Held are the scopes that a compute node says it holds, with the seq that each is as of.
	Held map[log.Scope]log.Seq
	// Server is the one that feeds a compute node; "": not known.
	Server string
	// Known: the compute node has a certificate of its own.
	Known bool
	// Certificate is the one by which the compute node connected, if that is known.
	Certificate Certificate
}

// Certificate is what is to be known of one: the revocation after which it says that it was granted,
// by that one's times; 0: it names none.
type Certificate struct {
	Serial                string // "": not known
	Created, IssuedBefore log.Time
}

// Item is one entry of a stream, as it came. Streams of entries have Bytes, others Line.
type Item struct {
	Stream string
	Seq    log.Seq
	Chain  log.ChainPrefix
	Bytes  []byte
	Line   string
}

// Scope is a scope that a compute node got whole (Objects, in order), or that was dropped.
type Scope struct {
	Stream  string
	Scope   log.Scope
	AsOf    log.Seq // or of the drop
	Chain   log.ChainPrefix
	Dropped bool
	Objects []Object
}

// Object is an object of a scope, as it came.
type Object struct {
	Kind     log.Kind
	ID       string
	Revision log.Revision
	Seq      log.Seq
	Bytes    []byte
}

// Bookmark says to a compute node that everything up to Seq was sent.
type Bookmark struct {
	Stream  string
	Seq     log.Seq
	Chain   log.ChainPrefix
	Digests map[log.Scope]log.Digest
}

// Reset says to a compute node that its place cannot be used: everything follows anew.
type Reset struct {
	Stream string
	Reason string
}

// StreamEnded is the end of a stream, with its error.
type StreamEnded struct {
	Stream string
	Err    string
	Code   string // of a refusal
}

// Server is a look at a running server: its position, with what is compared with others at
// equal raft indexes.
type Server struct {
	Applied  uint64 // raft index
	Head     log.Cursor
	Hash     log.Hash
	Term     uint64
	Leads    bool   // it believes that it leads
	Leader   string // whom it believes to lead
	Ready    string // why it is not ready; "": it is
	Lag      int    // events that changes.db is behind
	Features uint32
	Replica  bool // it is a member without a vote, as it says itself
}

// State is the digest of a server's state at an applied index, by the dump of its state: equal
// indexes must have equal digests.
type State struct {
	Applied uint64
	Seq     log.Seq
	Digest  log.Hash
}

// Agent is a look at an agent: its bookmark, and its kernel beside what is desired for that.
type Agent struct {
	Head, Programmed log.Cursor
	Complete         bool
	Desired, Kernel  string // in one form; compared only when nothing moves
	Differences      []string
	// Compared: nothing moved at this look, the node had said that its kernel has all up to Head,
	// and the log stood there: Differences must be none.
	Compared bool
	// Mismatches counts the digests of servers that this agent, since it began, found to differ
	// from its own.
	Mismatches uint32
	// Uncertified: the certificate that it uses has ended.
	Uncertified bool
}

// Step is a step that an agent did in its kernel.
type Step struct {
	Text     string
	Deletes  bool
	Complete bool // the view was complete when it was planned
}

// Barrier is an answer to a wait for the fabric.
type Barrier struct {
	Seq         log.Seq
	From, Until time.Duration
	Done        bool
	Missing     []string // CNs
	// Kernels is what each agent's kernel lacked of the change when the answer came; empty: nothing.
	Kernels map[string]string
	Err     string
}

// Queue is the size of something that has a bound.
type Queue struct {
	Name        string
	Size, Bound int64 // Bound 0: none is known
}

// Fault is a fault that begins or is over.
type Fault struct {
	Fault history.Fault
	Over  bool
	Err   string // it could not be applied as asked
}

// Process is a server or agent that starts or ends.
type Process struct {
	State string // started, killed, stopped, failed
	Err   string
}

// Entries is the whole log of a server at the end: what streams are compared with.
type Entries struct {
	Floor   log.Seq
	Entries []log.Entry
}

// Lookup is an answer of a compute node's SVP about where a MAC or an address of a vnet is.
type Lookup struct {
	Node        string // that was asked
	CN          log.UUID
	VNet        uint32
	Key         string // the MAC, or the address
	Answer      string // "": not found; see LookupAnswer
	From, Until time.Duration
	After       log.Cursor // the node's bookmark before the question
	Whole       bool       // the node held all of the vnet, before the question and after the answer
	Err         string     // no answer, although the node's agent ran all the time
}

// LookupAnswer is the text of an answer: the underlay address and port, for an address with its
// MAC before them.
func LookupAnswer(mac *log.MAC, underlay netip.Addr, port uint16) string {
	at := netip.AddrPortFrom(underlay, port).String()
	if mac == nil {
		return at
	}
	return mac.String() + " " + at
}

// Registered is an answer to a registration at Triton's change feed.
type Registered struct {
	Server  string              // its URL
	Wants   map[string][]string // what of each resource is wanted
	At      log.Cursor          // behind which the next items are
	Resumed bool                // else all must be read anew
	Reason  string              // why not, if the server said so
}

// Told is an item of the change feed.
type Told struct {
	Resource, ID string
	Subs         []string // what happened
	At           log.Cursor
}

// Reported is a change of a report of a compute node about its NICs, with what its agent was told.
type Reported struct {
	CN      log.UUID
	Change  log.Change
	Outcome Outcome
	Last    log.Seq // if accepted: its last entry
	Err     string
}

// Restored: the cluster's log was replaced by a backup. What is after it is another timeline.
type Restored struct {
	From, To log.Cursor // the head before, and the backup's, with the new cluster
}

// Late is a part of a stream that a server sent before a restore, and that arrived after it.
type Late struct{ Event }

// Remembered says how long and how many change ids servers of this history remember, and, if
// Looked, how many one has in its file.
type Remembered struct {
	Age    time.Duration
	Count  int
	IDs    int
	Looked bool
}

// Probe is an answer to a reader whose place is not in the log.
type Probe struct {
	Server   string
	What     string // what is wrong with it
	Cursor   log.Cursor
	Followed bool // it was not refused
	Err      string
}

// Succession is how long it took until another server led, after a leader had ended.
type Succession struct {
	How  history.Kind // the fault that ended it
	By   string       // "": none led until Took
	Took time.Duration
}

func (Remembered) event()  {}
func (Probe) event()       {}
func (Succession) event()  {}
func (Write) event()       {}
func (WriteBegun) event()  {}
func (Read) event()        {}
func (StreamBegun) event() {}
func (Item) event()        {}
func (Scope) event()       {}
func (Bookmark) event()    {}
func (Reset) event()       {}
func (StreamEnded) event() {}
func (Server) event()      {}
func (State) event()       {}
func (Agent) event()       {}
func (Step) event()        {}
func (Barrier) event()     {}
func (Queue) event()       {}
func (Fault) event()       {}
func (Process) event()     {}
func (Entries) event()     {}
func (Lookup) event()      {}
func (Registered) event()  {}
func (Told) event()        {}
func (Reported) event()    {}
func (Restored) event()    {}
