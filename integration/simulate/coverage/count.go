package coverage

import (
	"maps"
	"slices"
	"strings"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
	"rutter/log"
)

// Count takes from the log of a history which states it came to, with how often.
func Count(records []seen.Record) map[string]int {
	c := &counter{
		counts: map[string]int{}, looks: map[string]seen.Server{}, running: map[string]bool{}, ended: map[string]bool{},
		writes: map[log.UUID]*write{}, streams: map[string]string{}, under: map[history.Fault]bool{},
	}
	for _, r := range records {
		c.record(r)
	}
	return c.counts
}

type counter struct {
	counts  map[string]int
	looks   map[string]seen.Server // the last one at each server
	leader  string                 // the last one that led
	term    uint64
	led     bool            // a server led at the last look
	running map[string]bool // servers
	ended   map[string]bool // servers and agents that ran and ended
	any     bool            // a server ran

	writes  map[log.UUID]*write
	pending int     // writes under way
	head    log.Seq // the newest entry of which a client was told
	streams map[string]string
	under   map[history.Fault]bool
}

// write is what is known of one change.
type write struct {
	unknown bool // an outcome was unknown
}

func (c *counter) record(r seen.Record) {
	switch e := r.Event.(type) {
	case seen.Server:
		c.server(r.Who, e)
	case seen.Process:
		c.process(r.Who, e)
	case seen.WriteBegun:
		c.pending++
	case seen.Write:
		c.write(e)
	case seen.Read:
		c.when(e.Err != "", ReadFailed)
		c.when(e.Err == "" && isReplica(e.Server), ReplicaRead)
	case seen.StreamBegun:
		c.when(c.streams[e.Stream] != "", StreamResumed)
		c.streams[e.Stream] = "begun"
	case seen.StreamEnded:
		c.when(strings.Contains(e.Code, "Compacted") || strings.Contains(e.Code, "TooOld"), StreamTooOld)
		c.when(strings.Contains(e.Code, "CursorOfOtherLog"), StreamOtherLog)
	case seen.Agent:
		c.when(!e.Complete, AgentHalf)
		c.when(e.Programmed.Seq < e.Head.Seq, AgentBehind)
	case seen.Barrier:
		c.when(e.Done, BarrierDone)
		c.when(!e.Done && e.Err == "", BarrierTimeout)
	case seen.Fault:
		c.fault(e)
	case seen.Restored:
		c.counts[EpochChange]++
	}
}

func (c *counter) when(it bool, state string) {
	if it {
		c.counts[state]++
	}
}

// server counts what a look at a server shows beside the looks at the others.
func (c *counter) server(who string, e seen.Server) {
	c.looks[who] = e
	c.when(e.Ready != "", NotReady)
	c.when(e.Lag > 0, Behind)
	leads := 0
	for name, look := range c.looks {
		if look.Leads && c.running[name] {
			leads++
		}
	}
	c.when(leads > 1, TwoLeaders)
	c.when(leads == 0 && c.led, NoLeader)
	c.led = leads > 0
	if !e.Leads || e.Term <= c.term {
		return
	}
	if c.leader != "" && c.leader != who {
		c.counts[LeaderChange]++
		c.when(c.pending > 0, ElectionInWrites)
	}
	c.leader, c.term = who, e.Term
}

// process counts starts and ends. An agent's name begins with cn.
func (c *counter) process(who string, e seen.Process) {
	started := e.State == "started"
	if !started && !slices.Contains([]string{"killed", "stopped", "failed"}, e.State) {
		return
	}
	if strings.HasPrefix(who, "cn") {
		c.when(started && c.ended[who], AgentRestart)
		c.ended[who] = c.ended[who] || !started
		return
	}
	if started {
		c.when(c.ended[who], Restart)
		c.when(c.any && len(c.running) == 0, ColdStart)
		c.running[who], c.any = true, true
		return
	}
	delete(c.looks, who)
	if !c.running[who] {
		return
	}
	c.ended[who] = true
	delete(c.running, who)
	c.when(len(c.running) == 0, AllDown)
	c.when(isReplica(who) && !slices.ContainsFunc(slices.Collect(maps.Keys(c.running)), isReplica), ReplicasDown)
}

// isReplica reports whether a machine's server joined without a vote.
func isReplica(who string) bool { return strings.HasPrefix(who, "n") }

// write counts outcomes. A change whose outcome was unknown, and of which a retry is told
// a place before the newest, had been done already.
func (c *counter) write(e seen.Write) {
	c.pending--
	w := c.writes[e.Change.ID]
	if w == nil {
		w = &write{}
		c.writes[e.Change.ID] = w
	}
	switch e.Outcome {
	case seen.Unknown:
		c.counts[WriteUnknown]++
		w.unknown = true
	case seen.Refused:
		c.counts[Refusal]++
	case seen.NotTaken:
		c.counts[NotTaken]++
	case seen.Accepted:
		c.when(w.unknown && e.Result.Last < c.head, Deduped)
		c.head = max(c.head, e.Result.Last)
	}
}

// together is how many faults at once are worth counting.
const together = 3

func (c *counter) fault(e seen.Fault) {
	if e.Over {
		delete(c.under, e.Fault)
		return
	}
	c.when(e.Fault.Kind == history.Power && strings.HasPrefix(e.Fault.On, "s"), PowerCut)
	if e.Fault.For > 0 {
		c.under[e.Fault] = true
		c.when(len(c.under) == together, FaultsTogether)
	}
}
