package agent

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"rutter/log"
	"rutter/log/feed"
)

// Status is the agent's report about itself.
type Status struct {
	CN          log.UUID `json:"cn"`
	Incarnation uint64   `json:"incarnation"`
	Session     uint64   `json:"session"` // counts the connections of this incarnation

	State    State     `json:"state"`
	Since    time.Time `json:"since"`  // of the state
	Server   string    `json:"server"` // that it follows or tries
	Attempts uint64    `json:"attempts"`
	Failure  string    `json:"error,omitempty"` // why the last connection ended
	// Age is how long no server has fed this node; 0 while one does.
	Age time.Duration `json:"age_ns"`

	Cursor     log.Cursor `json:"cursor"`
	Head       log.Seq    `json:"head"`       // of the server, as last received
	Lag        uint64     `json:"lag"`        // entries between cursor and head; most concern other nodes
	Applied    log.Seq    `json:"applied"`    // everything up to here is known; 0 until a server confirmed it
	Programmed log.Seq    `json:"programmed"` // the kernel matched the log here; 0: not in this process

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
	Commits uint64 `json:"commits"`         // transactions of this process
	Waiting int    `json:"waiting"`         // rows that are not on disk yet
	Failure string `json:"error,omitempty"` // why the last transaction failed
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

// watermark is what is reported to a server.
func (a *Agent) watermark() feed.Watermark {
	kernel := a.reconciler.brief()
	a.replica.mu.RLock()
	defer a.replica.mu.RUnlock()
	return feed.Watermark{
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
//	GET /metrics  numbers of Status by name, as flat JSON
func (a *Agent) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ping", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, "pong")
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, a.Status())
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, a.Status().metrics())
	})
	return mux
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	// An error means that the reader has gone; it is ignored.
	_ = json.NewEncoder(w).Encode(v)
}

func count(is bool, n uint64) uint64 {
	if is {
		return n
	}
	return 0
}

// heldLinks are those that would be removed.
func (s Status) heldLinks() uint64 {
	if s.Hold == nil {
		return 0
	}
	return uint64(s.Hold.Going)
}

// metrics are the numbers of a status, by name.
func (s Status) metrics() map[string]uint64 {
	objects := 0
	for _, n := range s.Objects {
		objects += n
	}
	following := uint64(0)
	if s.State == Following {
		following = 1
	}
	return map[string]uint64{
		"rutter_agent_following":       following,
		"rutter_agent_age_ns":          uint64(s.Age), // how long no server has fed it
		"rutter_agent_session":         s.Session,
		"rutter_agent_cursor_seq":      uint64(s.Cursor.Seq),
		"rutter_agent_head_seq":        uint64(s.Head),
		"rutter_agent_lag_entries":     s.Lag,
		"rutter_agent_applied_seq":     uint64(s.Applied),
		"rutter_agent_programmed_seq":  uint64(s.Programmed),
		"rutter_agent_resets_total":    s.Resets,
		"rutter_agent_digest_mismatch": uint64(s.Mismatches),
		"rutter_agent_scopes":          uint64(len(s.Scopes)),
		"rutter_agent_objects":         uint64(objects),
		"rutter_agent_passes_total":    s.Kernel.Passes,
		"rutter_agent_pass_ns":         uint64(s.Kernel.Took),
		"rutter_agent_delay_p99_ns":    uint64(s.Kernel.Delay99),
		"rutter_agent_failing":         uint64(s.Kernel.Failing),
		"rutter_agent_blocked":         uint64(s.Kernel.Blocked),
		"rutter_agent_unread":          uint64(s.Kernel.Unread),
		"rutter_agent_steps_total":     s.Kernel.Steps,
		"rutter_agent_problems":        uint64(len(s.Kernel.Problems)),
		"rutter_agent_healed_total":    s.Kernel.Healed,
		"rutter_agent_cache_commits":   s.Cache.Commits,
		"rutter_agent_cache_rows_wait": uint64(s.Cache.Waiting),
		"rutter_agent_cache_failing":   count(s.Cache.Failure != "", 1),
		"rutter_agent_held":            count(s.Hold != nil, 1),
		"rutter_agent_held_links":      s.heldLinks(),
		"rutter_agent_trouble":         uint64(len(s.Trouble)),
	}
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
}

func (d *delays) note(took time.Duration) {
	d.last[d.n%maxDelays] = took
	d.n++
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
