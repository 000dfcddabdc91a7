package faults

import (
	"cmp"
	"fmt"
	"math"
	"net/url"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"rutter/api/client"
	"rutter/log"
)

// register is the state of one in the model: the value at a revision.
type register struct {
	revision uint64
	value    string
}

// model is a register with compare-and-swap. An operation whose outcome is
// unknown returns at the end of time: it takes effect somewhere after its call,
// and there at the very end if it never did, where no read sees it.
var model = porcupine.Model{
	Init: func() any { return register{1, first} },
	Step: func(state, input, _ any) (bool, any) {
		r, o := state.(register), input.(op)
		switch {
		case o.action == actRead:
			return r == register{o.revision, o.value}, r
		case o.action == actSwap && o.revision != r.revision:
			return o.outcome != done, r
		case o.outcome == refused:
			return false, r
		}
		return true, register{r.revision + 1, o.value}
	},
	DescribeOperation: func(input, _ any) string { return input.(op).String() },
	DescribeState:     func(state any) string { return fmt.Sprint(state) },
}

// checkTime bounds the search for one register's order.
const checkTime = time.Minute

// problems are what a check found.
type problems []string

func (p *problems) addf(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// maxShown bounds how many problems are printed: the first ones matter.
const maxShown = 20

func (p problems) report(t *testing.T) {
	t.Helper()
	for i, text := range p {
		if i == maxShown {
			t.Errorf("and %d more", len(p)-maxShown)
			return
		}
		t.Error(text)
	}
}

// checkRegisters looks for an order of each register's operations that explains
// all answers.
func checkRegisters(ops []op) (found problems) {
	var keys [registers][]porcupine.Operation
	for _, o := range ops {
		if o.action == actGlimpse {
			continue // promises less: checkReads
		}
		ret := int64(o.ret)
		if o.outcome == unknown {
			ret = math.MaxInt64
		}
		keys[o.key] = append(keys[o.key], porcupine.Operation{ClientId: o.client, Input: o, Call: int64(o.call), Return: ret})
	}
	for key, operations := range keys {
		switch porcupine.CheckOperationsTimeout(model, operations, checkTime) {
		case porcupine.Illegal:
			found.addf("register %d: no order explains its %d operations:%s", key, len(operations), tail(operations))
		case porcupine.Unknown:
			found.addf("register %d: no answer about %d operations within %v", key, len(operations), checkTime)
		}
	}
	return found
}

// tail lists the longest part of a history from its beginning that can still be
// explained, and the operation that cannot: its last lines.
func tail(operations []porcupine.Operation) string {
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	bad := sort.Search(len(operations), func(n int) bool {
		return porcupine.CheckOperationsTimeout(model, asKnownBy(operations, n+1), checkTime) == porcupine.Illegal
	})
	var b strings.Builder
	for _, o := range operations[max(0, bad-maxShown):min(bad+1, len(operations))] {
		fmt.Fprintf(&b, "\n  %v", o.Input.(op))
	}
	return b.String()
}

// asKnownBy returns the first n operations, and what had begun by the end of
// the last of them as unknown.
func asKnownBy(operations []porcupine.Operation, n int) []porcupine.Operation {
	known := slices.Clone(operations[:n])
	for _, o := range operations[n:] {
		if in := o.Input.(op); o.Call < known[n-1].Return && in.action != actRead {
			in.outcome, o.Return = unknown, math.MaxInt64
			o.Input = in
			known = append(known, o)
		}
	}
	return known
}

// entry is an entry of the log, as far as it is compared.
type entry struct {
	chain    log.ChainPrefix
	change   log.UUID
	id       string
	revision uint64
	value    string
	time     log.Time
	more     uint32
}

func entryOf(line log.Line) entry {
	e := entry{chain: line.Chain, change: line.Event.ChangeID, id: line.Event.ID, revision: uint64(line.Event.Revision), time: line.Event.Time, more: line.Event.More}
	if vm, ok := line.Event.Object.(*log.VM); ok {
		e.value = vm.Alias
	}
	return e
}

// readLogs reads the whole log of every server, and returns it if they are
// equal, seq 1 first.
func readLogs(t *testing.T, c *cluster) []entry {
	t.Helper()
	var logs [][]entry
	for _, s := range c.servers {
		one := newClient(t, patientTime, s.url)
		var entries []entry
		for line, err := range one.Log(t.Context(), client.LogQuery{Query: url.Values{"consistent": {"1"}}}) {
			if err != nil {
				t.Fatalf("the log of %s: %v", s.id, err)
			}
			if line.Seq != log.Seq(len(entries)+1) {
				t.Fatalf("the log of %s: entry %d has seq %d", s.id, len(entries)+1, line.Seq)
			}
			entries = append(entries, entryOf(line))
		}
		logs = append(logs, entries)
	}
	// A write that no client waits for any more may arrive between two reads.
	shortest := slices.MinFunc(logs, func(a, b []entry) int { return len(a) - len(b) })
	for i, entries := range logs {
		for at := range shortest {
			if entries[at] != shortest[at] {
				t.Fatalf("seq %d is %+v on %s, and %+v elsewhere", at+1, entries[at], c.servers[i].id, shortest[at])
			}
		}
	}
	return slices.MaxFunc(logs, func(a, b []entry) int { return len(a) - len(b) })
}

// checkLog compares the log with what the clients were told: nothing that was
// acknowledged is missing, nothing is there twice, the order of seqs is that of
// time, and each answer is the state at the seq that it names.
func checkLog(ids []string, ops []op, entries []entry) (found problems) {
	changes := make(map[log.UUID]log.Seq) // the last event of each
	values := make(map[string]log.Seq)
	for i, e := range entries {
		seq := log.Seq(i + 1)
		if i > 0 && e.time < entries[i-1].time {
			found.addf("seq %d: time goes back, from %v to %v", seq, entries[i-1].time, e.time)
		}
		if before, ok := changes[e.change]; ok && (before != seq-1 || entries[i-1].more != e.more+1) {
			found.addf("change %s is at seq %d and again at %d", e.change, before, seq)
		}
		changes[e.change] = seq
		if before, ok := values[e.value]; ok && e.value != first {
			found.addf("value %q is at seq %d and again at %d", e.value, before, seq)
		}
		values[e.value] = seq
	}
	ops = slices.Clone(ops)
	for i := range ops {
		o := &ops[i]
		if o.action != actWrite && o.action != actSwap {
			continue
		}
		at := values[o.value]
		switch {
		case o.outcome == done && at == 0:
			found.addf("lost: %v", *o)
		case o.outcome == refused && at != 0:
			found.addf("refused, and at seq %d: %v", at, *o)
		case o.outcome == done && o.action == actWrite && (at != o.seq || changes[o.change] != at):
			found.addf("at seq %d: %v", at, *o)
		}
		o.seq = at
	}
	found = append(found, checkReads(ids, ops, entries)...)
	return append(found, checkOrder(ops)...)
}

// checkReads compares each answer with the state at the seq that it names: also
// one that need not be fresh must have been true once.
func checkReads(ids []string, ops []op, entries []entry) (found problems) {
	for _, o := range ops {
		if o.action != actRead && o.action != actGlimpse {
			continue
		}
		if o.seq > log.Seq(len(entries)) {
			found.addf("read from beyond the log's end %d: %v", len(entries), o)
			continue
		}
		id := ids[o.key]
		for at := o.seq; at > 0; at-- {
			if e := entries[at-1]; e.id == id {
				if e.value != o.value || e.revision != o.revision {
					found.addf("the state was %q at revision %d: %v", e.value, e.revision, o)
				}
				break
			}
		}
	}
	return found
}

// checkOrder: what was called after an answer has a higher seq than the answer,
// and a consistent read at least its own.
func checkOrder(ops []op) (found problems) {
	byCall := slices.Clone(ops)
	slices.SortFunc(byCall, func(a, b op) int { return cmp.Compare(a.call, b.call) })
	byReturn := slices.DeleteFunc(slices.Clone(ops), func(o op) bool {
		return o.outcome != done || o.action == actGlimpse
	})
	slices.SortFunc(byReturn, func(a, b op) int { return cmp.Compare(a.ret, b.ret) })
	var latest op
	next := 0
	for _, o := range byCall {
		for ; next < len(byReturn) && byReturn[next].ret < o.call; next++ {
			if byReturn[next].seq > latest.seq {
				latest = byReturn[next]
			}
		}
		written := (o.action == actWrite || o.action == actSwap) && o.seq != 0
		switch {
		case written && o.seq <= latest.seq:
			found.addf("seq %d was told before the call: %v; told: %v", latest.seq, o, latest)
		case o.action == actRead && o.seq < latest.seq:
			found.addf("stale: seq %d was told before the call: %v; told: %v", latest.seq, o, latest)
		}
	}
	return found
}
