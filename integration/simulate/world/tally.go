package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rutter/agent"
	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/raftstore"
)

// tallyEvery is how often the states that the log of a history does not show are looked for.
const tallyEvery = time.Second

// tally counts those states: what servers and agents say of themselves, from one look to the
// next. Only one goroutine uses it.
type tally struct {
	w       *world
	servers map[string]serverLook
	nodes   map[string]nodeLook
	floor   log.Seq // of any server
	members string  // as a leader says
}

// serverLook is what was seen of a server's process.
type serverLook struct {
	store    *raftstore.Store
	images   uint64 // that took the place of its state
	clock    bool   // an alarm stood
	room     bool
	replaced bool   // the state is being replaced
	lags     uint64 // how often it was too far behind, if it is a replica
}

// nodeLook is what was seen of an agent's process.
type nodeLook struct {
	agent   *agent.Agent
	cursor  log.Seq
	server  string // that feeds it; "": none
	resets  uint64
	differs uint32
	healed  uint64
	// from is the replica that fed it last, and lags how often that had been too far behind then; nil:
	// another server did.
	from *server
	lags uint64
}

// tallies looks until ctx ends.
func tallies(ctx context.Context, w *world) {
	t := &tally{w: w, servers: map[string]serverLook{}, nodes: map[string]nodeLook{}}
	for ctx.Err() == nil {
		for _, s := range w.servers {
			if store := s.store(); store != nil {
				t.server(s, store)
			}
		}
		for _, n := range w.nodes {
			t.node(n)
		}
		pause(ctx, tallyEvery)
	}
	counts := w.net.Counts()
	w.count(coverage.ConnectionReset, counts["connections reset by a fault"])
}

// when counts a state that began.
func (t *tally) when(it bool, state string) {
	if it {
		t.w.count(state, 1)
	}
}

func (t *tally) server(s *server, store *raftstore.Store) {
	before := t.servers[s.name]
	st := store.Status()
	now := serverLook{store: store, images: st.Restores, clock: len(st.Clock.Alarms) > 0, room: st.Room.Low || st.Room.Full, replaced: st.Rebuild, lags: st.Lags}
	t.servers[s.name] = now
	if before.store != store {
		before = serverLook{store: store}
	}
	if now.images > before.images {
		t.w.count(coverage.SnapshotInstalled, 1)
		t.when(t.feeds(s), coverage.SnapshotFeeding)
	}
	t.when(now.clock && !before.clock, coverage.ClockAlarm)
	t.when(now.room && !before.room, coverage.DiskAlarm)
	t.when(now.lags > before.lags, coverage.ReplicaLagged)
	t.when(now.replaced && !before.replaced, coverage.Rebuilt)
	if st.Floor > t.floor {
		if t.floor > 0 {
			t.w.count(coverage.FloorRaised, 1)
			t.away(st.Floor)
		}
		t.floor = st.Floor
	}
	if st.State == "Leader" {
		t.membership(st.Members)
	}
}

func (t *tally) membership(members []raftstore.MemberStatus) {
	var ids []string
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	text := fmt.Sprint(ids)
	t.when(t.members != "" && t.members != text, coverage.MemberChange)
	t.members = text
}

// feeds reports whether a server fed a node at the last look.
func (t *tally) feeds(s *server) bool {
	for _, look := range t.nodes {
		if strings.Contains(look.server, s.address(apiPort)) {
			return true
		}
	}
	return false
}

// away counts the nodes that no server fed at the last look, and whose place in the log is
// below the floor.
func (t *tally) away(floor log.Seq) {
	for _, look := range t.nodes {
		t.when(look.server == "" && look.cursor > 0 && look.cursor < floor, coverage.FloorWhileAway)
	}
}

func (t *tally) node(n *node) {
	before := t.nodes[n.name]
	a := n.running()
	if a == nil {
		before.server = ""
		t.nodes[n.name] = before
		return
	}
	st := a.Status()
	now := nodeLook{agent: a, cursor: st.Cursor.Seq, resets: st.Resets, differs: st.Mismatches, healed: st.Kernel.Healed}
	now.from, now.lags = before.from, before.lags
	if st.State == agent.Following {
		now.server = st.Server
		t.moved(&now)
	}
	t.nodes[n.name] = now
	if before.agent != a {
		before = nodeLook{}
	}
	t.when(now.resets > before.resets || now.differs > before.differs, coverage.ScopeSnapshot)
	t.when(now.healed > before.healed, coverage.DriftMended)
}

// moved counts nodes that begin to be fed by a replica, and those that left one since it was too far
// behind.
func (t *tally) moved(now *nodeLook) {
	from := now.from
	now.from = nil
	if i := slices.IndexFunc(t.w.servers, func(s *server) bool { return s.replica && strings.Contains(now.server, s.address(apiPort)) }); i >= 0 {
		now.from = t.w.servers[i]
	}
	t.when(from != nil && now.from != from && t.servers[from.name].lags > now.lags, coverage.ReplicaLeft)
	if now.from != nil && now.from != from {
		t.w.count(coverage.ReplicaFeeds, 1)
		now.lags = t.servers[now.from.name].lags // when it came: it may leave some looks after the lag began
	}
}

// countEnd counts what a program that ended by itself says of why.
func countEnd(w *world, err error) {
	if errors.Is(err, raftstore.ErrDiskHangs) {
		w.count(coverage.DiskStalled, 1)
	}
}

// countCache counts an agent that begins without what the one before it knew. The caller has
// locked n.mu.
func (n *node) countCache(a *agent.Agent) {
	knew := n.knew
	n.knew = true
	if knew && a.Status().Cursor.Seq == 0 {
		n.w.count(coverage.CacheRebuilt, 1)
	}
}

// countOlder counts an older program that refused to start.
func countOlder(w *world, who string, err error) {
	w.seen.Add(who, seen.Process{State: "refuses to start", Err: err.Error()})
	w.count(coverage.OlderRefused, 1)
}
