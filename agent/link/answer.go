package link

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// Answer answers what the kernel asks for, until ctx ends, and returns ctx's
// error then. It may run beside everything else. A kernel that asks for nothing
// makes it wait only.
func (m *Manager) Answer(ctx context.Context) error {
	asker, ok := m.cfg.Kernel.(Asker)
	if !ok {
		<-ctx.Done()
		return ctx.Err()
	}
	return asker.Ask(ctx, m.demand.answer)
}

// Believe says whom to ask for what the log says of single entries. Until then
// nothing is answered. It is called before Pass, Apply and Answer.
func (m *Manager) Believe(truth Truth) { m.demand.truth = truth }

// Ahead is how many entries of a vnet are programmed ahead; 0: any number.
func (m *Manager) Ahead() int { return max(cmp.Or(m.cfg.Ahead, DefaultAhead), 0) }

// Asked counts what the kernel asked for. Any goroutine may call it.
func (m *Manager) Asked() Asked { return m.demand.asked() }

// answer writes what was asked for, and makes room if that was too much. Also
// entries of vnets ahead are answered: somebody took them away, or they are to
// come with a pass that has not been made.
func (d *demand) answer(ctx context.Context, asked []Question, hand Hand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var steps []Step
	answered := uint64(0)
	d.read(func(entries Lookup) {
		for i := range asked {
			before := len(steps)
			steps = asked[i].steps(steps, entries)
			if len(steps) > before {
				answered++
			}
		}
	})
	d.questions.Add(uint64(len(asked)))
	d.answered.Add(answered)
	if len(steps) == 0 {
		return
	}
	slices.SortStableFunc(steps, compareStep) // forwarding entries first: a neighbour releases packets
	d.done(steps, hand.Do(ctx, steps))
	d.room(ctx, hand, maxEvict)
}

// compareStep orders steps on entries: forwarding entries, then neighbours by
// namespace.
func compareStep(a, b Step) int {
	if a.Op != b.Op {
		return int(a.Op) - int(b.Op)
	}
	return strings.Compare(a.Namespace, b.Namespace)
}

// steps appends what answers a question.
func (q *Question) steps(steps []Step, entries Lookup) []Step {
	to := q.MAC
	if q.IP.IsValid() {
		n, ok := entries.Neigh(q.Fabric, q.IP)
		if !ok {
			return steps
		}
		to = n.MAC
		steps = append(steps, Step{
			Op: OpSetNeigh, Object: Object{Kind: ObjectNeigh, MAC: q.Fabric, IP: n.IP}, Namespace: q.Namespace, Link: q.Link, MAC: to, Addr: n.IP,
		})
	}
	if f, ok := entries.FDB(q.VNet, to); ok {
		steps = append(steps, Step{
			Op: OpSetFDB, Object: Object{Kind: ObjectFDB, VNet: q.VNet, MAC: to}, Link: VXLANName(q.VNet), MAC: to, Addr: f.Dst, Port: f.Port,
		})
	}
	return steps
}

// done notes the steps that succeeded.
func (d *demand) done(steps []Step, errs []error) {
	for i := range steps {
		if errs == nil || errs[i] == nil {
			d.note(&steps[i])
		}
	}
}

// room takes entries away until each vnet is within the limit, at most so many
// MACs, and reports whether that was enough. A MAC that was in use since it was
// last looked at gets another turn. Neighbours go before what they lead to: then
// the next packet is kept until it is asked for anew, and none is lost.
func (d *demand) room(ctx context.Context, hand Hand, most int) (enough bool) {
	enough = true
	for _, vnet := range sortedKeys(d.vnets) {
		r := d.vnets[vnet]
		if r.size <= d.limit {
			continue
		}
		chosen := d.choose(ctx, hand, vnet, most)
		steps := make([]Step, 0, 2*len(chosen))
		for _, x := range chosen {
			for key, at := range x.neighs {
				steps = append(steps, Step{
					Op: OpDelNeigh, Object: Object{Kind: ObjectNeigh, MAC: key.link, IP: key.ip},
					Namespace: at.namespace, Link: at.name, Addr: key.ip,
				})
			}
		}
		slices.SortFunc(steps, func(a, b Step) int {
			return compareEntry(Entry{Namespace: a.Namespace, Link: a.Link, IP: a.Addr}, Entry{Namespace: b.Namespace, Link: b.Link, IP: b.Addr})
		})
		for _, x := range chosen {
			if x.to != (placed{}) {
				steps = append(steps, Step{Op: OpDelFDB, Object: Object{Kind: ObjectFDB, VNet: vnet, MAC: x.mac}, Link: VXLANName(vnet), MAC: x.mac})
			}
		}
		d.done(steps, hand.Do(ctx, steps))
		d.evicted.Add(uint64(len(steps)))
		enough = enough && r.size <= d.limit
	}
	return enough
}

// choose returns MACs of a vnet that may go: enough of them, but at most so many.
func (d *demand) choose(ctx context.Context, hand Hand, vnet uint32, most int) []*resident {
	r := d.vnets[vnet]
	now := d.now()
	first := make([]*resident, 0, 2*most)
	for e := r.order.Front(); e != nil && len(first) < 2*most; e = e.Next() {
		first = append(first, e.Value.(*resident))
	}
	entries := make([]Entry, len(first))
	for i, x := range first {
		entries[i] = Entry{Link: VXLANName(vnet), MAC: x.mac}
	}
	unused := hand.Unused(ctx, entries)
	var chosen, used []*resident
	over := r.size - d.limit
	for i, x := range first {
		switch {
		case over <= 0 || len(chosen) == most:
			return chosen
		case unused[i] >= 0 && unused[i]+usedGrain < now.Sub(x.looked):
			x.looked = now
			used = append(used, x)
		default:
			chosen = append(chosen, x)
			over -= x.size()
		}
	}
	for _, x := range used {
		if over > 0 && len(chosen) < most && len(chosen) < len(first)/2 {
			chosen = append(chosen, x) // all are in use: the first of them goes
			over -= x.size()
			continue
		}
		r.order.MoveToBack(r.macs[x.mac])
	}
	return chosen
}

// shrink makes room for all, and lets questions be answered between the parts.
func (d *demand) shrink(ctx context.Context, hand Hand) {
	for ctx.Err() == nil {
		d.mu.Lock()
		before := d.evicted.Load()
		enough := d.room(ctx, hand, maxEvict)
		d.mu.Unlock()
		if enough || d.evicted.Load() == before {
			return
		}
	}
}

// handOf returns the hand that a kernel is to its own user: no other hand may
// use it meanwhile.
func handOf(k Kernel) Hand {
	if h, ok := k.(Hand); ok {
		return h
	}
	return plainHand{k}
}

// plainHand is a kernel that does not know when it used what.
type plainHand struct{ Kernel }

// Unused implements Hand.
func (plainHand) Unused(_ context.Context, entries []Entry) []time.Duration {
	unknown := make([]time.Duration, len(entries))
	for i := range unknown {
		unknown[i] = -1
	}
	return unknown
}
