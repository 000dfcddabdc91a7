package agent

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/log/feed"
)

// KernelStatus compares the kernel with what is wanted.
type KernelStatus struct {
	Passes  uint64 `json:"passes"`
	Applied uint64 `json:"applied"` // rounds between passes, for the entries that events touched
	// Delay50 and Delay99 are percentiles over the last of these rounds: the time
	// from the oldest event, applied, to the kernel's acknowledgement.
	Delay50 time.Duration `json:"delay_p50_ns"`
	Delay99 time.Duration `json:"delay_p99_ns"`
	// Delays are all these times of this process.
	Delays   Delays        `json:"-"`
	At       time.Time     `json:"at,omitzero"`       // when the last pass began
	Took     time.Duration `json:"took_ns"`           // by the last pass
	TookAll  time.Duration `json:"took_all_ns"`       // by all passes of this process
	WholeAt  time.Time     `json:"whole_at,omitzero"` // when the last pass of a complete view began
	Complete bool          `json:"complete"`          // the last pass was allowed to remove
	Matched  bool          `json:"matched"`           // at its end the kernel was as a complete view wants it
	Failure  string        `json:"error,omitempty"`   // why the last pass could not be made
	Steps    uint64        `json:"steps"`             // done in this process
	Healed   uint64        `json:"healed"`            // of these, steps that corrected changes by other programs
	// HealedBy counts Healed by the kind of object, and FailingBy counts Failing and Blocked.
	HealedBy  map[string]uint64 `json:"healed_by,omitempty"`
	FailingBy map[string]int    `json:"failing_by,omitempty"`
	Failing   int               `json:"failing"` // objects that could not be made, as of the last pass, without those of Idle
	Blocked   int               `json:"blocked"` // objects that foreign links block
	Unread    int               `json:"unread"`  // VM namespaces that could not be read, as of the last pass
	Waiting   int               `json:"waiting"` // objects that barriers of changes that concern them wait for
	// WaitingNICs are the NICs among the objects of Waiting whose links are not there.
	WaitingNICs int `json:"waiting_nics"`
	Idle        int `json:"idle"`       // links that are not there because their VMs are not to run
	VNets       int `json:"vnets"`      // with links of this node, as of the last pass
	Links       int `json:"links"`      // wanted: all kinds of links
	Neighs      int `json:"neighbours"` // wanted
	FDB         int `json:"fdb"`        // wanted
	// Demand is about the vnets that have too many entries to program them ahead.
	Demand DemandStatus `json:"on_demand"`
	// Waits are the objects of Waiting, then those of Idle, at most maxListed of both.
	Waits []WaitStatus `json:"waits"`
	// Failures, Conflicts, Drift and Problems (objects of the log that cannot be
	// programmed) are texts, at most maxListed of each.
	Failures  []string `json:"failures"`
	Conflicts []string `json:"conflicts"`
	Drift     []string `json:"drift"` // of the last pass that found any
	Problems  []string `json:"problems"`
	// Unprogrammable is how many Problems there are, with those that are not listed.
	Unprogrammable int `json:"unprogrammable"`
	// Renamed are the links that another program renamed, by their names now, at most
	// maxListed. They are programmed all the same.
	Renamed []string `json:"renamed"`
}

// DemandStatus counts what the kernel asked for.
type DemandStatus struct {
	VNets     int    `json:"vnets"`     // on demand
	Resident  int    `json:"resident"`  // their entries that the kernel has
	Questions uint64 `json:"questions"` // asked in this process, also of other vnets
	Answered  uint64 `json:"answered"`  // of these; the log has no entry for the others
	Evicted   uint64 `json:"evicted"`   // entries that were removed to make room
}

// Status is the agent's report about itself.
type Status struct {
	CN          log.UUID `json:"cn"`
	Incarnation uint64   `json:"incarnation"`
	Session     uint64   `json:"session"` // counts the connections of this incarnation

	State    State     `json:"state"`
	Since    time.Time `json:"since"`  // of the state
	Server   string    `json:"server"` // that it follows or tries
	Attempts uint64    `json:"attempts"`
	// Zone is this node's, Away whether Server is of another one, and Moves how often the
	// node went back to its own. Without a zone a node is never away.
	Zone    string `json:"zone,omitempty"`
	Away    bool   `json:"away,omitempty"`
	Moves   uint64 `json:"zone_moves,omitempty"`
	Failure string `json:"error,omitempty"` // why the last connection ended
	// Age is how long no server has fed this node; 0 while one does.
	Age time.Duration `json:"age_ns"`

	Cursor     log.Cursor `json:"cursor"`
	Head       log.Seq    `json:"head"`                 // of the server, as last received
	Lag        uint64     `json:"lag"`                  // entries between cursor and head; most concern other nodes
	Bookmark   time.Time  `json:"bookmark_at,omitzero"` // when the last bookmark arrived; while the log does not change there is none
	Applied    log.Seq    `json:"applied"`              // everything up to here is known; 0 until a server confirmed it
	Programmed log.Seq    `json:"programmed"`           // the kernel matched the log here; 0: not in this process
	Reached    log.Seq    `json:"reached"`              // the kernel matched the log here, except for the objects of Kernel.Waits; 0: not in this process

	Resets      uint64    `json:"resets"`
	ResetReason string    `json:"reset_reason,omitempty"` // of the last
	ResetAt     time.Time `json:"reset_at,omitzero"`
	Missing     string    `json:"missing,omitempty"` // why the last bookmark did not count
	Checked     log.Seq   `json:"digest_checked"`    // the last bookmark at which all digests were equal; 0: none, or one differs
	Mismatches  uint32    `json:"digest_mismatches"` // scopes that differed and were requested again

	// Hold is what the node does not carry out of the log because it would remove too
	// much; nil: nothing is held.
	Hold *Hold `json:"hold,omitempty"`
	// Trouble is what else operators must know.
	Trouble []string `json:"trouble,omitempty"`

	Scopes  []ScopeStatus  `json:"scopes"`
	Objects map[string]int `json:"objects"` // held, by kind
	Kernel  KernelStatus   `json:"kernel"`
	Cache   CacheStatus    `json:"cache"`
}

// ScopeStatus is one scope that is held.
type ScopeStatus struct {
	Scope    log.Scope `json:"scope"`
	AsOf     log.Seq   `json:"as_of"`
	Complete bool      `json:"complete"`
}

// CacheStatus compares the file with what is held in memory.
type CacheStatus struct {
	Commits uint64 `json:"commits"` // transactions of this process
	Waiting int    `json:"waiting"` // rows that are not on disk yet
	// Failures counts the transactions of this process that failed.
	Failures uint64 `json:"failures"`
	Failure  string `json:"error,omitempty"` // why the last transaction failed
}

// Status returns the agent's status. It may be called from any goroutine.
func (a *Agent) Status() Status {
	s := Status{CN: a.cfg.CN, Incarnation: a.follower.incarnation, Kernel: a.reconciler.status(), Objects: make(map[string]int)}
	a.follower.status(&s)
	s.Age = a.follower.age()
	a.replica.status(&s)
	s.Hold, s.Trouble = a.replica.holding(), a.trouble()
	s.Cache = a.persister.status()
	s.Cache.Waiting = a.replica.waiting()
	return s
}

// WaitStatus is an object that the kernel does not have as the log wants it.
type WaitStatus struct {
	Object  string    `json:"object"` // what it is, and why it is not there
	NIC     log.MAC   `json:"nic,omitzero"`
	VM      log.UUID  `json:"vm_uuid,omitzero"`
	VNet    uint32    `json:"vnet_id,omitempty"`
	Idle    bool      `json:"idle,omitempty"`    // its VM is not to run: nothing waits for it
	RetryAt time.Time `json:"next_try,omitzero"` // zero: with the next pass
}

// waitsOf returns the objects of a pass in the form for servers, those that barriers wait
// for first.
func waitsOf(pending []link.Pending) []feed.Wait {
	waits := make([]feed.Wait, 0, len(pending))
	for _, idle := range []bool{false, true} {
		for i := range pending {
			p := &pending[i]
			if p.Idle != idle {
				continue
			}
			w := feed.Wait{Kind: kindOfWait(p.Concern), Idle: p.Idle, VNet: p.VNet, NIC: p.NIC, Peer: p.Peer, VM: p.VM}
			if !p.Idle { // the cause of the others is the flag; their list does not change with each try
				if !p.RetryAt.IsZero() {
					w.RetryAt = uint32(p.RetryAt.Unix())
				}
				why := p.Failure.String()
				w.Why = strings.ToValidUTF8(why[:min(len(why), feed.MaxWaitText)], "")
			}
			waits = append(waits, w)
		}
	}
	return waits
}

func kindOfWait(c link.Concern) feed.WaitKind {
	switch c {
	case link.ConcernVNet:
		return feed.WaitVNet
	case link.ConcernNIC:
		return feed.WaitNIC
	case link.ConcernEntry:
		return feed.WaitEntry
	}
	return feed.WaitNode
}

// WaitsOf returns up to which seq this node's kernel has the log but for objects that wait,
// and those of them that are of a VM. It may be called from any goroutine.
func (a *Agent) WaitsOf(vm log.UUID) (reached log.Seq, waits []WaitStatus) {
	a.replica.mu.RLock()
	reached = a.replica.reached
	a.replica.mu.RUnlock()
	a.reconciler.mu.Lock()
	defer a.reconciler.mu.Unlock()
	for i := range a.reconciler.waits {
		if w := &a.reconciler.waits[i]; w.VM == vm {
			waits = append(waits, WaitStatus{Object: w.String(), NIC: w.NIC, VM: w.VM, VNet: w.VNet, Idle: w.Idle})
		}
	}
	return reached, waits
}

// waitingNICs counts the NICs whose links are missing and should be there.
func waitingNICs(waits []feed.Wait) int {
	nics := make(map[log.MAC]struct{})
	for i := range waits {
		if w := &waits[i]; w.Kind == feed.WaitNIC && !w.Idle {
			nics[w.NIC] = struct{}{}
		}
	}
	return len(nics)
}

// statusOfWaits counts what waits and what is idle, and lists the first of them.
func (r *reconciler) statusOfWaits() (waiting, idle int, list []WaitStatus) {
	list = make([]WaitStatus, 0, min(len(r.waits), maxListed))
	for i := range r.waits {
		w := &r.waits[i]
		if w.Idle {
			idle++
		} else {
			waiting++
		}
		if len(list) < maxListed {
			s := WaitStatus{Object: w.String(), NIC: w.NIC, VM: w.VM, VNet: w.VNet, Idle: w.Idle}
			if w.RetryAt != 0 {
				s.RetryAt = time.Unix(int64(w.RetryAt), 0)
			}
			list = append(list, s)
		}
	}
	return waiting, idle, list
}

// notIdle returns the failures of a pass except those of VMs that are not to run.
func notIdle(result link.Result) []link.Failure {
	idle := map[plan.Object]bool{}
	for i := range result.Pending {
		if p := &result.Pending[i]; p.Idle {
			idle[p.Object] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(result.Failures), func(f link.Failure) bool { return idle[f.Object] })
}

// status is brief, with the percentiles.
func (r *reconciler) status() KernelStatus {
	s := r.brief()
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Delay50, s.Delay99 = r.delays.percentile(50), r.delays.percentile(99)
	s.Delays = r.delays.all
	s.HealedBy, s.FailingBy = maps.Clone(r.last.HealedBy), r.last.FailingBy // this one is replaced, never changed
	return s
}

// brief is the cheap part, because watermarks are made often.
func (r *reconciler) brief() KernelStatus {
	var asked link.Asked
	if kernel, ok := r.kernel.(demandKernel); ok {
		asked = kernel.Asked()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.last
	s.HealedBy, s.FailingBy = nil, nil // the first map is not copied for each watermark
	s.Demand = DemandStatus(asked)
	return s
}

// watermark is what is reported to a server.
func (a *Agent) watermark() feed.Watermark {
	kernel := a.reconciler.brief()
	a.replica.mu.RLock()
	defer a.replica.mu.RUnlock()
	reached, list := a.replica.reached, a.replica.list
	if kernel.Waiting+kernel.Idle > feed.MaxWaits {
		reached, list = 0, 0
	}
	return feed.Watermark{
		Reached: reached, List: list, Listed: list != 0, Waits: a.replica.waits,
		Log:     log.Cursor{Cluster: a.replica.cursor.Cluster, Seq: a.replica.cursor.Seq, Chain: a.replica.cursor.Chain},
		Checked: a.replica.checked, Mismatches: a.replica.mismatches, Resets: uint32(a.replica.resets), LastReset: a.replica.lastReset,
		Applied: a.replica.applied, Programmed: a.replica.programmed, Objects: uint32(a.replica.objects),
		Links: uint32(kernel.Links), Neighbours: uint32(kernel.Neighs), FDB: uint32(kernel.FDB),
		Failing: uint32(kernel.Failing + kernel.Blocked), Healed: kernel.Healed, Drift: kernel.drift(),
	}
}

// Handler serves the agent's status to operators and programs of its node. It is meant
// for a loopback or unix listener.
//
//	GET /ping     "pong", once the agent runs
//	GET /status   Status as JSON
func (a *Agent) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ping", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, "pong")
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, a.Status())
	})
	return mux
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	// An error means that the reader has gone; it is ignored.
	_ = json.NewEncoder(w).Encode(v)
}

// nameOfKind names a kind of object in HealedBy and in metrics.
func nameOfKind(kind plan.ObjectKind) string {
	switch kind {
	case plan.ObjectVXLAN:
		return "vxlan"
	case plan.ObjectVLAN:
		return "vlan"
	case plan.ObjectFabric:
		return "fabric link"
	case plan.ObjectNeigh:
		return "neighbour"
	case plan.ObjectFDB:
		return "forwarding entry"
	case plan.ObjectResolvers:
		return "resolvers"
	case plan.ObjectBridge:
		return "bridge"
	case plan.ObjectPeer:
		return "peer"
	case plan.ObjectFlood:
		return "flood entry"
	case plan.ObjectUnderlay:
		return "underlay"
	case plan.ObjectRules:
		return "rules"
	}
	return "other"
}

// maxDriftSent bounds how much of a KernelStatus's Drift is sent to the servers.
const maxDriftSent = 8

// drift is the last drift as text for the servers, one line each.
func (s *KernelStatus) drift() string {
	return strings.Join(s.Drift[:min(len(s.Drift), maxDriftSent)], "\n")
}

// maxDelays is the number of recent rounds over which a percentile is computed.
const maxDelays = 4096

// delays has the last times from the application of the oldest event of a round to the
// kernel's acknowledgement of everything that the round's events touched.
type delays struct {
	last [maxDelays]time.Duration
	n    uint64 // the count of all rounds
	all  Delays
}

// DelayBounds are the upper bounds of the counts of Delays. A round takes a few
// milliseconds; seconds are what passes take.
var DelayBounds = [...]time.Duration{
	500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 60 * time.Second,
}

// Delays counts times.
type Delays struct {
	Count uint64
	Sum   time.Duration
	UpTo  [len(DelayBounds)]uint64 // the times up to each bound
}

func (d *Delays) note(took time.Duration) {
	d.Count++
	d.Sum += took
	for i, bound := range DelayBounds {
		if took <= bound {
			d.UpTo[i]++
		}
	}
}

func (d *delays) note(took time.Duration) {
	d.last[d.n%maxDelays] = took
	d.n++
	d.all.note(took)
}

// percentile returns the time that p of 100 rounds did not exceed, 0 without rounds.
func (d *delays) percentile(p int) time.Duration {
	known := slices.Clone(d.last[:min(d.n, maxDelays)])
	if len(known) == 0 {
		return 0
	}
	slices.Sort(known)
	return known[(len(known)-1)*p/100]
}
