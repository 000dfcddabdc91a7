package oracle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/rules"
)

// cloud makes the records of a small cluster in which everything is right. The log in them is
// decided and folded as servers do it.
type cloud struct {
	t       *testing.T
	state   *projections.State
	entries []log.Entry
	hash    log.Hash
	now     time.Duration
	n       uint64
	records []seen.Record
	cluster log.UUID
}

func (c *cloud) add(who string, e seen.Event) {
	c.records = append(c.records, seen.Record{N: len(c.records), At: c.now, Who: who, Event: e})
	c.now += time.Millisecond
}

func (c *cloud) cursor() log.Cursor {
	return log.Cursor{Cluster: c.cluster, Seq: log.Seq(len(c.entries)), Chain: c.hash.Prefix()}
}

// write does one change, and returns its acknowledgement.
func (c *cloud) write(who string, ops ...string) seen.Write {
	c.t.Helper()
	c.n++
	change := &log.Change{ID: changetest.UUID(c.n), Actor: who, Time: log.Time(1e9 + c.n*1e6), Seed: c.n}
	change.ID[0] = 0xc0
	for _, text := range ops {
		change.Ops = append(change.Ops, changetest.Op(c.t, text))
	}
	w := seen.Write{Surface: "changes", Change: *change, From: c.now, Outcome: seen.Accepted}
	c.add(who, seen.WriteBegun{Surface: "changes", Change: *change})
	events, result := rules.Decide(c.state, change)
	if result.Refusal != nil {
		w.Outcome, w.Refusal, w.Until = seen.Refused, result.Refusal, c.now
		c.add(who, w)
		return w
	}
	result.First, result.Events = log.Seq(len(c.entries))+1, uint32(len(events))
	for _, e := range events {
		b, err := log.NewEncoder().Event(e)
		if err == nil {
			e, err = log.DecodeEvent(b)
		}
		seq := log.Seq(len(c.entries)) + 1
		if err == nil {
			_, err = c.state.Apply(seq, e)
		}
		if err != nil {
			c.t.Fatal(err)
		}
		c.hash = c.hash.Next(seq, b)
		c.entries = append(c.entries, log.Entry{Seq: seq, Hash: c.hash, Bytes: b})
	}
	result.Last = log.Seq(len(c.entries))
	w.Result, w.Until = result, c.now
	c.add(who, w)
	return w
}

// look shows all servers and agents.
func (c *cloud) look() {
	applied := uint64(c.n + 10)
	for _, who := range []string{"s1", "s2", "s3"} {
		c.add(who, seen.Server{Applied: applied, Head: c.cursor(), Hash: c.hash, Term: 2, Leads: who == "s2", Leader: "s2"})
		c.add(who, seen.State{Applied: applied, Seq: c.cursor().Seq, Digest: c.hash})
	}
	for _, who := range []string{"cn1", "cn2"} {
		c.add(who, seen.Agent{Head: c.cursor(), Programmed: c.cursor(), Complete: true, Desired: "x", Kernel: "x"})
	}
}

// stream sends what a subscriber is to get after a seq.
func (c *cloud) stream(name, filter string, after int, is func(i int) bool) {
	begun := seen.StreamBegun{Stream: name, Kind: "entries", Filter: filter}
	if after > 0 {
		begun.After = log.Cursor{Cluster: c.cluster, Seq: log.Seq(after), Chain: c.entries[after-1].Hash.Prefix()}
	}
	c.add(name, begun)
	for i, e := range c.entries {
		if i >= after && is(i) {
			c.add(name, seen.Item{Stream: name, Seq: e.Seq, Chain: e.Hash.Prefix(), Bytes: e.Bytes})
		}
	}
	c.add(name, seen.StreamEnded{Stream: name})
}

const net = "00000000-0000-4000-8000-0000000000aa"

// read reads the network.
func (c *cloud) read(mode string) {
	r, _ := c.state.Get(log.KindNetwork, net)
	e := seen.Read{Kind: log.KindNetwork, ID: net, Mode: mode, From: c.now, Until: c.now + 1, Found: true, Revision: r.Revision, Object: map[string]any{"description": r.Object.(*log.Network).Description}}
	if mode == "min_seq" {
		e.MinSeq = c.cursor().Seq
	}
	c.add("r1", e)
}

// good returns the records of a cluster without a breach.
func good(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{t: t, state: projections.NewState(), now: time.Second, cluster: changetest.UUID(99)}
	for _, who := range []string{"s1", "s2", "s3", "cn1", "cn2"} {
		c.add(who, seen.Process{State: "started"})
	}
	c.write("c1", `create nic_tag {"name":"external","mtu":1500}`, `create nic_tag {"name":"other","mtu":1500}`)
	c.write("c1", `create network {"uuid":"`+net+`","name":"n","nic_tag":"external","vlan_id":0,"subnet":"10.0.0.0/24","provision_start_ip":"10.0.0.5","provision_end_ip":"10.0.0.250","mtu":1500}`)
	for i := range 2 {
		c.write("c2", fmt.Sprintf(`create server {"uuid":"#%d#","hostname":"cn%d","setup":true}`, 11+i, 1+i))
	}
	c.write("c2", `create nic_tag {"name":"external","mtu":1500}`) // refused
	for i := range 2 {
		c.write("rutter", fmt.Sprintf(`update server #%d# {"status":"running"}`, 11+i))
	}
	c.read("consistent")
	for i := range 3 {
		c.write("c1", fmt.Sprintf(`update network %s {"description":"d%d"}`, net, i))
		c.read("consistent")
		c.read("min_seq")
		c.read("local")
	}
	c.look()
	c.stream("f1", "", 0, func(int) bool { return true })
	c.stream("f1", "", len(c.entries), func(int) bool { return true })
	c.stream("f2", "kind=network", 2, func(i int) bool { return i == 2 || i > 6 })
	c.stream("f3", "cn="+changetest.UUID(11).String(), 0, func(i int) bool {
		e, err := c.entries[i].Event()
		return err == nil && c.state.Interested(changetest.UUID(11), e.Scopes)
	})
	c.feed("cn1", changetest.UUID(11))
	c.add("w1", seen.Barrier{Seq: c.cursor().Seq, Done: true})
	c.add("w1", seen.Barrier{Seq: c.cursor().Seq, Missing: []string{"cn1"}})
	c.add("cn1", seen.Step{Text: "del", Deletes: true, Complete: true})
	c.listens(2)
	c.add("cn1", seen.Reported{CN: changetest.UUID(11), Outcome: seen.Unknown, Err: "no answer"})
	c.add("l1", seen.Lookup{Node: "cn1", CN: changetest.UUID(11), VNet: 7, Key: "10.7.0.5", After: c.cursor()})
	c.add("s1", seen.Queue{Name: "proposals", Size: 3, Bound: 3})
	c.add("cn1", seen.Write{Surface: SurfaceLie, Outcome: seen.Refused, Change: log.Change{ID: changetest.UUID(98)}})
	c.add("s1", seen.Fault{Fault: history.Fault{Kind: history.Cut, On: "s1"}, Over: true})
	for _, who := range []string{"s1", "s2", "s3"} {
		c.add(who, seen.Entries{Floor: 1, Entries: slices.Clone(c.entries)})
	}
	return c
}

// edit changes the i-th record of a kind; a negative i counts from the end.
func edit[T seen.Event](c *cloud, i int, change func(*T)) {
	c.t.Helper()
	var at []int
	for n, r := range c.records {
		if _, ok := r.Event.(T); ok {
			at = append(at, n)
		}
	}
	if i < 0 {
		i += len(at)
	}
	e := c.records[at[i]].Event.(T)
	change(&e)
	c.records[at[i]].Event = e
}

// status records the presence of cn1 in the log of all servers.
func (c *cloud) status(status string) {
	c.write("rutter", `update server #11# {"status":"`+status+`"}`)
	for i := range 3 {
		edit(c, i, func(e *seen.Entries) { e.Entries = c.entries })
	}
	c.look()
}

// drop takes the i-th record of a kind away.
func drop[T seen.Event](c *cloud, i int) {
	for n, r := range c.records {
		if _, ok := r.Event.(T); ok {
			if i--; i < 0 {
				c.records = slices.Delete(c.records, n, n+1)
				return
			}
		}
	}
}

// lose takes the last entry from all servers, as if it had never been.
func lose(c *cloud) {
	for i := range 3 {
		edit(c, i, func(e *seen.Entries) { e.Entries = e.Entries[:len(e.Entries)-1] })
	}
}

// TestGood: nothing is found where everything is right.
func TestGood(t *testing.T) {
	c := good(t)
	if found := Judge(c.records); len(found) > 0 {
		t.Errorf("found %s", strings.Join(found, "\n"))
	}
	if missing := Missing(c.records); len(missing) > 0 {
		t.Errorf("there are no records of %v: the tests of oracles are not whole", missing)
	}
	if missing := Missing(nil); len(missing) < 10 {
		t.Errorf("only %v are missing", missing)
	}
}

// TestWithoutWitness: nothing is found in records without entries but what needs none.
func TestWithoutWitness(t *testing.T) {
	c := good(t)
	for range 3 {
		drop[seen.Entries](c, 0)
	}
	if found := Judge(c.records); len(found) > 0 {
		t.Errorf("found %s", strings.Join(found, "\n"))
	}
}

// breach makes good records wrong, so that an oracle must find it.
type breach struct {
	oracle, name string
	do           func(c *cloud)
}

// breaches is at least one wrong record for each oracle.
var breaches = []breach{
	{"dense", "a gap", func(c *cloud) { edit(c, 0, func(e *seen.Entries) { e.Entries = slices.Delete(e.Entries, 3, 4) }) }},
	{"dense", "a wrong hash", func(c *cloud) { edit(c, 0, func(e *seen.Entries) { e.Entries[4].Hash[9] ^= 1 }) }},
	{"dense", "half a change at the end", func(c *cloud) { edit(c, 1, func(e *seen.Entries) { e.Entries = e.Entries[:1] }) }},
	{"same", "another entry", func(c *cloud) { edit(c, 2, func(e *seen.Entries) { e.Entries[7].Hash[31] ^= 1 }) }},
	{"same", "another head", func(c *cloud) { edit(c, 1, func(e *seen.Server) { e.Hash[0] ^= 1 }) }},
	{"same", "another state", func(c *cloud) { edit(c, 2, func(e *seen.State) { e.Digest[0] ^= 1 }) }},
	{"told", "an entry is lost that a server showed", lose},
	{"told", "an entry of another log", func(c *cloud) { edit(c, 1, func(e *seen.Item) { e.Chain[0] ^= 1 }) }},
	{"told", "a bookmark of another log", func(c *cloud) { edit(c, 0, func(e *seen.Agent) { e.Head.Chain[0] ^= 1 }) }},
	{"acknowledged", "an accepted change is lost", lose},
	{"acknowledged", "it is elsewhere", func(c *cloud) { edit(c, 1, func(e *seen.Write) { e.Result.First++; e.Result.Last++ }) }},
	{"acknowledged", "it was refused", func(c *cloud) {
		edit(c, 2, func(e *seen.Write) { e.Outcome, e.Refusal = seen.Refused, &log.Refusal{Code: "x"} })
	}},
	{"once", "done again", func(c *cloud) {
		for i := range 3 {
			edit(c, i, func(e *seen.Entries) {
				again := e.Entries[2]
				again.Seq = log.Seq(len(e.Entries)) + 1
				again.Hash = e.Entries[len(e.Entries)-1].Hash.Next(again.Seq, again.Bytes)
				e.Entries = append(e.Entries, again)
			})
		}
	}},
	{"once", "another answer to a retry", func(c *cloud) {
		again := c.records[8].Event.(seen.Write)
		again.Result.First++
		c.add("c1", again)
	}},
	{"once", "a refusal of a retry", func(c *cloud) {
		again := c.records[8].Event.(seen.Write)
		again.From, again.Until = c.now, c.now+1
		again.Outcome = seen.Refused
		c.add("c1", again)
	}},
	{"order", "an earlier change is behind a later one", func(c *cloud) {
		edit(c, 1, func(e *seen.Write) { e.From, e.Until = c.now, c.now+1 })
		edit(c, 1, func(e *seen.WriteBegun) { *e = seen.WriteBegun{} })
	}},
	{"linearizable", "a consistent read of an old value", func(c *cloud) {
		edit(c, -3, func(e *seen.Read) { e.Revision--; e.Object = map[string]any{"description": "d1"} })
	}},
	{"linearizable", "two reads of concurrent writes, in both orders", func(c *cloud) {
		edit(c, -1, func(e *seen.Write) { *e = seen.Write{} })
		edit(c, -3, func(e *seen.Read) { e.Object = map[string]any{"description": "d0"} })
	}},
	{"stale", "a consistent read of an old value", func(c *cloud) {
		edit(c, -3, func(e *seen.Read) { e.Revision--; e.Object = map[string]any{"description": "d1"} })
	}},
	{"stale", "older than the least seq", func(c *cloud) {
		edit(c, -2, func(e *seen.Read) { e.Revision--; e.Object = map[string]any{"description": "d1"} })
	}},
	{"stale", "a value that never was", func(c *cloud) {
		edit(c, -1, func(e *seen.Read) { e.Object = map[string]any{"description": "d7"} })
	}},
	{"stale", "a value of the future", func(c *cloud) { edit(c, -1, func(e *seen.Read) { e.From, e.Until = 0, 1 }) }},
	{"stale", "a consistent read goes back behind another", func(c *cloud) {
		drop[seen.Write](c, 9) // only a reader knows that the last write is done
		edit(c, -1, func(e *seen.Read) {
			e.Mode, e.Revision, e.Object = "consistent", e.Revision-1, map[string]any{"description": "d1"}
		})
	}},
	{"leader", "two of one term", func(c *cloud) { edit(c, 0, func(e *seen.Server) { e.Leads = true }) }},
	{"stream", "a gap", func(c *cloud) { drop[seen.Item](c, 2) }},
	{"stream", "an entry twice", func(c *cloud) { edit(c, 2, func(e *seen.Item) { e.Seq-- }) }},
	{"stream", "other bytes", func(c *cloud) { edit(c, 2, func(e *seen.Item) { e.Bytes = append([]byte{0}, e.Bytes...) }) }},
	{"stream", "not what the filter says", func(c *cloud) {
		edit(c, 1, func(e *seen.StreamBegun) { e.After = log.Cursor{} })
		edit(c, 0, func(e *seen.StreamBegun) { e.Filter = "kind=server" })
	}},
	{"stream", "goes on too late", func(c *cloud) { edit(c, 1, func(e *seen.StreamBegun) { e.After.Seq += 2 }) }},
	{"stream", "a node lacks an entry", func(c *cloud) { drop[seen.Item](c, len(c.entries)+4+1) }},
	{"beyond", "an entry of another node", func(c *cloud) {
		e := c.entries[4]
		c.add("f4", seen.StreamBegun{Stream: "f4", Filter: "cn=" + changetest.UUID(11).String()})
		c.add("f4", seen.Item{Stream: "f4", Seq: e.Seq, Chain: e.Hash.Prefix(), Bytes: e.Bytes})
	}},
	{"lie", "taken", func(c *cloud) {
		edit(c, -1, func(e *seen.Write) { e.Outcome, e.Result.Events = seen.Accepted, 1 })
	}},
	{"delete", "on half-known state", func(c *cloud) { edit(c, 0, func(e *seen.Step) { e.Complete = false }) }},
	{"bookmark", "goes back", func(c *cloud) {
		c.add("cn1", seen.Agent{Head: log.Cursor{Cluster: c.cluster, Seq: 3, Chain: c.entries[2].Hash.Prefix()}})
	}},
	{"bookmark", "behind what is programmed", func(c *cloud) { edit(c, 0, func(e *seen.Agent) { e.Programmed.Seq++ }) }},
	{"kernel", "lacks something", func(c *cloud) { edit(c, 1, func(e *seen.Agent) { e.Differences = []string{"add link"} }) }},
	{"kernel", "has another text", func(c *cloud) { edit(c, 1, func(e *seen.Agent) { e.Kernel = "y" }) }},
	{"kernel", "is behind", func(c *cloud) { edit(c, 1, func(e *seen.Agent) { e.Programmed.Seq-- }) }},
	{"kernel", "knows a part", func(c *cloud) { edit(c, 1, func(e *seen.Agent) { e.Complete = false }) }},
	{"barrier", "with missing nodes", func(c *cloud) { edit(c, 1, func(e *seen.Barrier) { e.Done = true }) }},
	{"barrier", "a kernel lacks it", func(c *cloud) { edit(c, 0, func(e *seen.Barrier) { e.Kernels = map[string]string{"cn1": "link"} }) }},
	{"liveness", "unknown at the end", func(c *cloud) { c.status("unknown") }},
	{"liveness", "unknown without a fault", func(c *cloud) {
		drop[seen.Fault](c, 0)
		c.status("unknown")
		c.status("running")
	}},
	{"liveness", "away, and not unknown", func(c *cloud) {
		kill := history.Fault{Kind: history.Kill, On: "cn1", For: Away}
		c.add("cn1", seen.Fault{Fault: kill})
		c.now += Away
		c.add("cn1", seen.Fault{Fault: kill, Over: true})
	}},
	{"bounded", "over its bound", func(c *cloud) { edit(c, 0, func(e *seen.Queue) { e.Size++ }) }},
	{"healthy", "not ready", func(c *cloud) { edit(c, 0, func(e *seen.Server) { e.Ready = "behind" }) }},
	{"healthy", "no leader", func(c *cloud) { edit(c, 1, func(e *seen.Server) { e.Leads = false }) }},
	{"healthy", "does not run at the end", func(c *cloud) { c.add("s2", seen.Process{State: "killed"}) }},
	{"healthy", "ended by itself", func(c *cloud) {
		c.add("s2", seen.Process{State: "failed", Err: "x"})
		c.add("s2", seen.Process{State: "started"})
	}},
	{"healthy", "elsewhere", func(c *cloud) { edit(c, 2, func(e *seen.Server) { e.Head.Seq--; e.Applied-- }) }},
}

// TestBreaches: each oracle finds what breaks its promise, and there is a breach for each.
func TestBreaches(t *testing.T) {
	tested := make(map[string]bool)
	for _, b := range slices.Concat(breaches, nodeBreaches, aimedBreaches, lookupBreaches, changefeedBreaches, reportBreaches, replicaBreaches) {
		tested[b.oracle] = true
		t.Run(b.oracle+": "+b.name, func(t *testing.T) {
			c := good(t)
			b.do(c)
			found := Judge(c.records)
			if !slices.ContainsFunc(found, func(line string) bool { return strings.HasPrefix(line, b.oracle+": ") }) {
				t.Errorf("not found; found is %q", found)
			}
		})
	}
	for _, o := range All() {
		if !tested[o.Name] {
			t.Errorf("no breach of oracle %s is tested", o.Name)
		}
	}
}

// TestAllowed: what may be, and looks like a breach.
func TestAllowed(t *testing.T) {
	for name, do := range map[string]func(c *cloud){
		"an unknown outcome, and it was done": func(c *cloud) { edit(c, -2, func(e *seen.Write) { e.Outcome = seen.Unknown }) },
		"an unknown outcome, and it was not": func(c *cloud) {
			c.add("c3", seen.Write{Outcome: seen.Unknown, Change: log.Change{ID: changetest.UUID(97)}, From: c.now, Until: c.now})
		},
		"no outcome": func(c *cloud) { c.add("c3", seen.WriteBegun{Change: log.Change{ID: changetest.UUID(97)}}) },
		"refused, and an earlier try is done": func(c *cloud) {
			edit(c, 2, func(e *seen.Write) { e.Outcome = seen.Unknown })
			var again seen.Write
			edit(c, 2, func(e *seen.Write) { again = *e })
			again.Outcome = seen.Refused
			c.add("c2", again)
		},
		"a local read of an old value": func(c *cloud) {
			edit(c, -1, func(e *seen.Read) { e.Revision--; e.Object = map[string]any{"description": "d1"} })
		},
		"a disk ended a server": func(c *cloud) {
			c.add("s2", seen.Fault{Fault: history.Fault{Kind: history.Full, On: "s2"}})
			c.add("s2", seen.Process{State: "failed", Err: "no room"})
			c.add("s2", seen.Process{State: "started"})
		},
		"unknown while it was away": func(c *cloud) {
			kill := history.Fault{Kind: history.Kill, On: "cn1", For: Away}
			c.add("cn1", seen.Fault{Fault: kill})
			c.now += Away
			c.add("cn1", seen.Fault{Fault: kill, Over: true})
			c.status("unknown")
			c.status("running")
		},
		"a leader of another term": func(c *cloud) {
			c.records = slices.Insert(c.records, 5, seen.Record{Who: "s1", Event: seen.Server{Leads: true, Term: 1}})
		},
		"an agent begins with an older cache": func(c *cloud) {
			c.add("cn1", seen.Process{State: "started"})
			c.add("cn1", seen.Agent{Head: log.Cursor{Cluster: c.cluster, Seq: 3, Chain: c.entries[2].Hash.Prefix()}})
			c.add("cn1", seen.Agent{Head: c.cursor(), Programmed: c.cursor(), Complete: true})
		},
		"what a restore took away": func(c *cloud) {
			to := log.Cursor{Cluster: changetest.UUID(96), Seq: log.Seq(len(c.entries)) - 1}
			at := len(c.records) - 3
			c.records = slices.Insert(c.records, at, seen.Record{At: c.now, Who: "operator", Event: seen.Restored{From: c.cursor(), To: to}})
			lose(c)
			c.records = slices.Insert(c.records, at+1, seen.Record{At: c.now, Who: "cn1", Event: seen.Agent{Head: c.cursor()}}) // it has not noticed yet
			for _, who := range []string{"cn1", "cn2"} {
				c.add(who, seen.Agent{Head: log.Cursor{Seq: to.Seq, Cluster: to.Cluster, Chain: c.entries[to.Seq-1].Hash.Prefix()}, Programmed: to, Complete: true})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := good(t)
			do(c)
			if found := Judge(c.records); len(found) > 0 {
				t.Errorf("found %s", strings.Join(found, "\n"))
			}
		})
	}
}

// BenchmarkJudge: what judging a history costs.
func BenchmarkJudge(b *testing.B) {
	c := good(&testing.T{})
	for i := range 200 {
		c.write("c1", fmt.Sprintf(`update network %s {"description":"e%d"}`, net, i))
		c.read("consistent")
		c.look()
	}
	for i := range 3 {
		edit(c, i, func(e *seen.Entries) { e.Entries = c.entries })
	}
	for b.Loop() {
		Judge(c.records)
	}
}
