// Package oracle says whether what was seen of a simulated cluster may be. It owns the oracles:
// small functions without state, each for one promise of Rutter, over the records of package
// seen. It runs nothing.
//
// The log that the servers have at the end is the witness: what was acknowledged, shown and
// streamed is compared with it. So records of Entries must be among those that are judged; an
// oracle that lacks what it compares with says nothing (see Missing).
package oracle

import (
	"fmt"

	"rutter/integration/simulate/seen"
)

// Oracle is one promise, and the function that finds where it was broken.
type Oracle struct {
	Name  string
	Holds string // the promise
	Rules string // of docs/safety.md, whose breach it would show
	check func(*past, report)
}

// report takes one breach.
type report func(format string, args ...any)

// All returns the oracles, in the order in which they are asked.
func All() []Oracle {
	return []Oracle{
		{"dense", "the log of each server is without gaps, chained by its hashes, and has whole changes; its time does not go back", "S1 P1 D2 T1", dense},
		{"same", "servers that are equally far have the same bytes and the same state", "D2 P5 A1", same},
		{"told", "an entry that any server, stream or acknowledgement named is in the log where it was", "P1 P3 F6 S8", told},
		{"acknowledged", "what was accepted is in the log where it was said to be, what was refused is not", "P1 P3 A2", acknowledged},
		{"once", "a change is done once, however often it was sent, and each answer about it is the same", "A2 T2", once},
		{"order", "a change that began after another was acknowledged is behind it in the log", "P3 R1", order},
		{"linearizable", "an order of all writes and consistent reads of an object explains each answer", "R1", linearizable},
		{"stale", "each read has what the log had, no older than was promised, and nothing that was not written", "R1 F6", stale},
		{"leader", "each term has one leader at most", "R1 P4", leader},
		{"stream", "a stream has each entry that it is for, once, in order, byte by byte, and goes on where it was", "F1 F4 F5", stream},
		{"beyond", "a compute node gets no entry that does not concern it, or that is in what it holds", "F1 I3", beyond},
		{"lie", "what a compute node says of others is not accepted", "I1 I2 B4", lie},
		{"severed", "a compute node gets nothing from a server that has applied a revocation of it", "K1", severed},
		{"certified", "a compute node that can reach servers has a certificate that has not ended, whatever became of its folder", "K3", certified},
		{"cache", "an agent whose disk hangs, is slow or full goes on to program its kernel", "B1 W1", cache},
		{"delete", "an agent deletes nothing while it knows only a part", "F3 B3", deletes},
		{"bookmark", "the bookmark of an agent does not go back, and is not behind what its kernel has", "F2 B1", bookmark},
		{"kernel", "at the end, each kernel is what the log says", "B1 B3 R3", kernels},
		{"barrier", "a barrier is done only when each kernel has what it waited for", "B1 B2 B3 L2", barrier},
		{"lookup", "SVP answers what the log had for that node, no older than its bookmark, also without servers", "F1 F2 I3", lookups},
		{"changefeed", "a listener of the change feed is told each change that it wants, once, in order, or to read all anew", "P1 F6", changefeed},
		{"report", "what a compute node reports is in the log once if it was accepted, and about its own NICs", "A2 I1 I2", reports},
		{"liveness", "a compute node is unknown only when it was away, and running at the end", "B2", liveness},
		{"bounded", "nothing grows over its bound", "P2 W1", bounded},
		{"window", "servers remember change ids as long and as many as they are to, and take no id that is ahead or another change's", "T2 P5 A2", window},
		{"cursor", "a reader whose place is not in the log is refused", "F4 F6 P4 S8", cursor},
		{"available", "writes are taken while only a minority of the servers is in trouble", "P4 P6 P7", available},
		{"replica", "a server without a vote that is far behind is not ready, and feeds no compute node", "P7 L1", replicas},
		{"election", "a leader that ended is replaced in time", "P4", election},
		{"healthy", "after the last fault all servers are ready, equally far, and have one leader; none ended by itself", "P4 P6 P7", healthy},
	}
}

// maxShown bounds the breaches of one oracle that Judge returns: the first ones matter.
const maxShown = 5

// Judge returns what was broken, a line each, with the oracle's name before it.
func Judge(records []seen.Record) (failures []string) {
	p := newPast(records)
	for _, o := range All() {
		n := 0
		o.check(p, func(format string, args ...any) {
			if n++; n <= maxShown {
				failures = append(failures, o.Name+": "+fmt.Sprintf(format, args...))
			}
		})
		if n > maxShown {
			failures = append(failures, fmt.Sprintf("%s: and %d more", o.Name, n-maxShown))
		}
	}
	return failures
}

// Missing returns the kinds of records that there are none of, so that the oracles that need
// them said nothing.
func Missing(records []seen.Record) (kinds []string) {
	there := make(map[string]bool)
	for _, r := range records {
		there[fmt.Sprintf("%T", r.Event)] = true
	}
	for _, e := range []seen.Event{
		seen.Write{},
		seen.Read{},
		seen.StreamBegun{},
		seen.Item{},
		seen.Scope{},
		seen.Bookmark{},
		seen.Server{},
		seen.State{},
		seen.Agent{},
		seen.Barrier{},
		seen.Lookup{},
		seen.Registered{},
		seen.Told{},
		seen.Reported{},
		seen.Queue{},
		seen.Process{},
		seen.Entries{},
	} {
		if kind := fmt.Sprintf("%T", e); !there[kind] {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}
