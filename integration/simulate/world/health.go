package world

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/oracle"
	"rutter/integration/simulate/seen"
	"rutter/log"
	"rutter/projections/desired"
	"rutter/raftstore"
)

// recovery is how long the cluster may take, after the last fault, until all is healthy. An
// agent waits at most 2 s between tries, and 3 s for each server that does not answer; a
// client's connection that is dead is noticed after 20 s; an object of the kernel that failed
// is tried again after at most 30 s; elections and a rebuilt server take a few seconds more.
const recovery = 60 * time.Second

// heal waits until all is healthy, and checks what must hold then.
func (w *world) heal() {
	lapse(w)
	begun := time.Now()
	recovers(w, begun)
	w.count("healthy after s", int(time.Since(begun).Seconds()))
	w.observe.quiet()
	recovers(w, begun) // certificates are renewed also when all is quiet
	remembered(w)
	w.judge()
}

// recovers waits until all is healthy, from the time on at which the faults were over.
func recovers(w *world, begun time.Time) {
	for {
		why := w.unhealthy()
		if len(why) == 0 {
			return
		}
		if time.Since(begun) > recovery {
			for _, line := range why {
				w.fail("not healthy %v after the last fault: %s", recovery, line)
			}
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// unhealthy says what is not as it is to be when nothing goes wrong and no client writes.
func (w *world) unhealthy() (why []string) {
	var first seen.Server
	var leaders int
	var store *raftstore.Store
	for i, s := range w.servers {
		e, ok := w.observe.look(s)
		switch {
		case !ok:
			why = append(why, s.name+" does not run")
			continue
		case e.Ready != "":
			why = append(why, s.name+" is not ready: "+e.Ready)
		}
		if e.Leads {
			leaders++
		}
		if i == 0 || store == nil {
			first, store = e, s.store()
		} else if e.Head != first.Head {
			why = append(why, fmt.Sprintf("%s stands at %s, and another at %s", s.name, e.Head, first.Head))
		}
		if e.Lag > 0 {
			why = append(why, fmt.Sprintf("%s has %d events that are not in changes.db", s.name, e.Lag))
		}
	}
	if leaders != 1 {
		why = append(why, fmt.Sprintf("%d servers lead", leaders))
	}
	if store == nil {
		return why
	}
	why = append(why, absent(w.nodes, store)...)
	for _, n := range w.nodes {
		store.View(func(v raftstore.View) {
			why = append(why, n.source.different(func(kind log.Kind, id string) (log.Object, bool) {
				r, ok := v.State.Get(kind, id)
				return r.Object, ok
			})...)
		})
	}
	for _, l := range w.listeners {
		why = append(why, l.behind(store)...)
	}
	for _, n := range w.nodes {
		why = append(why, w.unprogrammed(n, store)...)
	}
	return why
}

// unprogrammed says what an agent's kernel lacks of a server's state.
func (w *world) unprogrammed(n *node, store *raftstore.Store) (why []string) {
	a := n.running()
	if a == nil {
		return []string{n.name + " does not run"}
	}
	var want desired.Links
	runs := "unknown to the log"
	store.View(func(v raftstore.View) {
		want = desired.Of(v.State, n.cn)
		if r, ok := v.State.Get(log.KindServer, n.cn.String()); ok {
			if s, is := r.Object.(*log.Server); is {
				runs = s.Status
			}
		}
	})
	if runs != "running" { // its session is known to its server before the leader writes that it runs
		why = append(why, fmt.Sprintf("%s runs, and is %s in the log", n.name, runs))
	}
	lacks := n.kernel.unlike(want)
	status := a.Status()
	e := seen.Agent{Head: status.Cursor, Programmed: log.Cursor{Seq: status.Programmed}, Complete: status.Kernel.Complete, Differences: lacks, Mismatches: status.Mismatches}
	w.seen.Add(n.name, e)
	if len(lacks) > 0 {
		why = append(why, fmt.Sprintf("%s: its kernel is not as the log wants it: %d steps: %s (state %s, cursor %s, error %q, failures %v)", n.name, len(lacks), strings.Join(lacks[:min(4, len(lacks))], "; "), status.State, status.Cursor, status.Failure, status.Kernel.Failures))
	}
	if status.Cache.Failure != "" {
		why = append(why, n.name+" does not write its cache: "+status.Cache.Failure)
	}
	if head := store.Head(); status.Head != head.Seq || status.Programmed != head.Seq {
		why = append(why, fmt.Sprintf("%s: is at %s, head %d, programmed %d, and the log at %s (state %s, error %q)", n.name, status.Cursor, status.Head, status.Programmed, head, status.State, status.Failure))
	}
	return why
}

// judge checks what must hold of all that was seen.
func (w *world) judge() {
	for _, s := range w.servers {
		w.observe.points(s)
	}
	w.observe.tell()
	entries, floors := map[string][]log.Entry{}, map[string]log.Seq{}
	for _, s := range w.servers {
		store := s.store()
		if store == nil {
			continue
		}
		after := store.Floor() // the newest that is not kept
		floor := after + 1
		var all []log.Entry
		rotten := false // a row that rotted on the disk is found by who reads it; an operator brings the server anew
		for {
			more, err := store.Entries(after, 1000)
			if rotten = errors.Is(err, log.ErrCorrupt) && rots(w.h, s.name); rotten {
				w.count("rot found by a reader", 1)
				break
			}
			if err != nil {
				w.fail("entries of %s after %d: %v", s.name, after, err)
				break
			}
			if len(more) == 0 {
				break
			}
			all = append(all, more...)
			after = more[len(more)-1].Seq
		}
		if rotten {
			continue
		}
		entries[s.name] = all
		floors[s.name] = floor
		w.seen.Add(s.name, seen.Entries{Entries: all, Floor: floor})
		var sum string
		store.View(func(v raftstore.View) { sum = fmt.Sprint(v.State.Sum(), v.Head) })
		w.sums = append(w.sums, s.name+" "+sum)
		if i := slices.IndexFunc(w.sums, func(other string) bool { return other[3:] != sum }); i >= 0 {
			w.fail("states differ: %s, %s", w.sums[i], w.sums[len(w.sums)-1])
		}
	}
	for id, all := range entries {
		w.acknowledged(id, floors[id], all)
		break
	}
}

// rots reports whether a history has bits of a server's files flipped.
func rots(h history.History, name string) bool {
	return slices.ContainsFunc(h.Faults, func(f history.Fault) bool { return f.Kind == history.Rot && f.On == name })
}

// acknowledged: what was accepted is in the log once, where it was said to be, if the log keeps it
// still: from floor on; what was refused is not.
func (w *world) acknowledged(id string, floor log.Seq, all []log.Entry) {
	type place struct{ first, last log.Seq }
	found := map[log.UUID]place{}
	var before log.UUID
	for _, entry := range all {
		event, err := entry.Event()
		if err != nil {
			w.fail("%s: %v", id, err)
			return
		}
		p, known := found[event.ChangeID]
		if known && event.ChangeID != before {
			w.fail("%s: change %s was done twice: at %d, and at %d", id, event.ChangeID, p.first, entry.Seq)
		}
		if !known {
			p.first = entry.Seq
		}
		p.last, before = entry.Seq, event.ChangeID
		found[event.ChangeID] = p
	}
	records := w.seen.Records()
	for i, r := range records {
		e, is := r.Event.(seen.Write)
		if !is || e.Surface == oracle.SurfaceReused {
			continue
		}
		if to, restored := restoredTo(records, i); restored && e.Result.Last > to || restored && e.Outcome != seen.Accepted {
			continue // it is of another timeline
		}
		p, there := found[e.Change.ID]
		switch {
		case e.Outcome == seen.Accepted && e.Result.Events > 0 && e.Result.First >= floor && (!there || p != place{e.Result.First, e.Result.Last}):
			w.fail("%s: change %s of %s was accepted at %v as %d to %d, and is %v in the log", id, e.Change.ID, r.Who, e.Until, e.Result.First, e.Result.Last, p)
		case e.Outcome == seen.Refused && there && !oracle.Forgotten(e):
			w.fail("%s: change %s of %s was refused at %v (%v), and is in the log at %d", id, e.Change.ID, r.Who, e.Until, e.Refusal, p.first)
		}
	}
}

const (
	// successionLook is how often it is looked whether there is another leader.
	successionLook = 10 * time.Millisecond
	// successionMost is how long it is looked.
	successionMost = 8 * time.Second
)

// succeeds records how long it takes until another server leads, if s leads and ends now.
func succeeds(w *world, s *server, how history.Kind) {
	store := s.store()
	if store == nil {
		return
	}
	if _, leads := store.Leading(); !leads {
		return
	}
	for _, other := range w.servers {
		if other != s && !other.replica && (other.store() == nil || other.store().Ready() != nil) {
			return
		}
	}
	w.zombies.Go(func() {
		begun := time.Now()
		for (how == history.Stop || how == history.Older) && w.ctx.Err() == nil { // in an orderly stop it leads until its requests are answered
			if _, leads := store.Leading(); !leads {
				break
			}
			time.Sleep(successionLook)
			begun = time.Now()
		}
		for time.Since(begun) < successionMost && w.ctx.Err() == nil {
			for _, other := range w.servers {
				if next := other.store(); next != nil && next != store {
					if _, leads := next.Leading(); leads {
						w.seen.Add(s.name, seen.Succession{How: how, By: other.name, Took: time.Since(begun)})
						return
					}
				}
			}
			time.Sleep(successionLook)
		}
		if w.ctx.Err() == nil {
			w.seen.Add(s.name, seen.Succession{How: how, Took: time.Since(begun)})
		}
	})
}
