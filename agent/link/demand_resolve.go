package link

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"rutter/agent/link/plan"
	"rutter/agent/miss"
)

// resolve writes the answers, and makes room if there are too many entries. Entries of
// vnets ahead are answered as well: another program removed them, or they will come
// with a pass that was not made yet.
func (d *demand) resolve(ctx context.Context, asked []Question, hand EntryWriter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var steps []plan.Step
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
func compareStep(a, b plan.Step) int {
	if a.Op != b.Op {
		return int(a.Op) - int(b.Op)
	}
	return strings.Compare(a.Namespace, b.Namespace)
}

// steps appends the steps that answer a question.
func (q *Question) steps(steps []plan.Step, entries Lookup) []plan.Step {
	to := q.MAC
	if q.IP.IsValid() {
		n, ok := entries.Neigh(q.Fabric, q.IP)
		if !ok {
			return steps
		}
		to = n.MAC
		steps = append(steps, plan.Step{
			Op: plan.OpSetNeigh, Object: plan.Object{Kind: plan.ObjectNeigh, MAC: q.Fabric, IP: n.IP}, Namespace: q.Namespace, Link: q.Link, MAC: to, Addr: n.IP,
		})
	}
	if f, ok := entries.FDB(q.VNet, to); ok {
		steps = append(steps, plan.Step{
			Op: plan.OpSetFDB, Object: plan.Object{Kind: plan.ObjectFDB, VNet: q.VNet, MAC: to}, Link: plan.VXLANName(q.VNet), MAC: to, Addr: f.Dst, Port: f.Port,
		})
	}
	return steps
}

// done records the steps that succeeded.
func (d *demand) done(steps []plan.Step, errs []error) {
	for i := range steps {
		if errs == nil || errs[i] == nil {
			d.note(&steps[i])
		}
	}
}

// room removes entries until each vnet is within the limit, at most so many MACs, and
// reports whether that was enough. A MAC that was used since the last check stays for
// now. Neighbours are removed before their forwarding entries: then the kernel keeps
// the next packet until the answer, and none is lost.
func (d *demand) room(ctx context.Context, hand EntryWriter, most int) (enough bool) {
	enough = true
	var neighs, forwards []plan.Step
	for _, vnet := range slices.Sorted(maps.Keys(d.vnets)) {
		r := d.vnets[vnet]
		if r.size <= d.limit {
			continue
		}
		chosen := d.choose(ctx, hand, vnet, most)
		most -= len(chosen)
		for _, x := range chosen {
			for key, at := range x.neighs {
				neighs = append(neighs, plan.Step{
					Op: plan.OpDelNeigh, Object: plan.Object{Kind: plan.ObjectNeigh, MAC: key.link, IP: key.ip},
					Namespace: at.Namespace, Link: at.Name, Addr: key.ip,
				})
			}
			if x.to != (plan.Target{}) {
				forwards = append(forwards, plan.Step{Op: plan.OpDelFDB, Object: plan.Object{Kind: plan.ObjectFDB, VNet: vnet, MAC: x.mac}, Link: plan.VXLANName(vnet), MAC: x.mac})
			}
		}
		if enough = false; most <= 0 {
			break
		}
	}
	if enough {
		return true
	}
	slices.SortFunc(neighs, func(a, b plan.Step) int {
		return plan.CompareEntry(plan.Entry{Namespace: a.Namespace, Link: a.Link, IP: a.Addr}, plan.Entry{Namespace: b.Namespace, Link: b.Link, IP: b.Addr})
	})
	steps := slices.Concat(neighs, forwards)
	d.done(steps, hand.Do(ctx, steps))
	d.evicted.Add(uint64(len(steps)))
	return false
}

// choose returns MACs of a vnet that may be removed: a part of the limit at once, so
// that not each answer has to make room. Those in use come last.
func (d *demand) choose(ctx context.Context, hand EntryWriter, vnet uint32, most int) []*resident {
	r := d.vnets[vnet]
	now := d.now()
	over := r.size - d.limit + d.limit/roomParts
	var chosen, used []*resident
	for looked := 0; looked < most && len(chosen) == 0 && r.order.Len() > 0; {
		first, sum := make([]*resident, 0, most), 0
		for e := r.order.Front(); e != nil && len(first) < most && sum < over; e = e.Next() {
			x := e.Value.(*resident)
			first = append(first, x)
			sum += x.size()
		}
		looked += len(first)
		unused := d.unused(ctx, hand, vnet, first, now)
		used = used[:0]
		for i, x := range first {
			if unused[i] >= 0 && unused[i]+usedGrain < now.Sub(x.looked) {
				used = append(used, x)
			} else {
				chosen = append(chosen, x)
			}
		}
		for _, x := range used {
			x.looked = now
			r.order.MoveToBack(r.macs[x.mac])
		}
	}
	if len(chosen) == 0 {
		return used // all are in use
	}
	return chosen
}

// unused reads when MACs were last used, if enough time has passed.
func (d *demand) unused(ctx context.Context, hand EntryWriter, vnet uint32, list []*resident, now time.Time) []time.Duration {
	unused := make([]time.Duration, len(list))
	entries, of := make([]plan.Entry, 0, len(list)), make([]int, 0, len(list))
	for i, x := range list {
		unused[i] = -1
		if x.to != (plan.Target{}) && now.Sub(x.looked) > usedGrain {
			entries, of = append(entries, plan.Entry{Link: plan.VXLANName(vnet), MAC: x.mac}), append(of, i)
		}
	}
	if len(entries) > 0 {
		for i, d := range hand.Unused(ctx, entries) {
			unused[of[i]] = d
		}
	}
	return unused
}

// shrink makes room for all, and allows questions between the parts.
func (d *demand) shrink(ctx context.Context, hand EntryWriter) {
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

// entryWriterOf returns the kernel as the EntryWriter of its own user; no other writer
// may use it meanwhile.
func entryWriterOf(k plan.Kernel) EntryWriter {
	if h, ok := k.(EntryWriter); ok {
		return h
	}
	return plainWriter{k}
}

// plainWriter is a kernel that does not know when entries were used.
type plainWriter struct{ plan.Kernel }

// Unused implements EntryWriter.
func (plainWriter) Unused(_ context.Context, entries []plan.Entry) []time.Duration {
	unknown := make([]time.Duration, len(entries))
	for i := range unknown {
		unknown[i] = -1
	}
	return unknown
}

// questions appends the questions in misses, for links of ours.
func (t *expected) questions(list []Question, misses []miss.Miss) []Question {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range misses {
		l := t.links[m.Link]
		switch {
		case l == nil || !l.Ours:
		case m.Kind == miss.Forward && l.Kind == plan.KindVXLAN:
			list = append(list, Question{VNet: l.VNI, MAC: m.MAC})
		case m.Kind == miss.Neighbour && l.IsFabric():
			if vnet, ok := plan.VNetOfName(t.below(l)); ok {
				list = append(list, Question{VNet: vnet, Namespace: l.Namespace, Link: l.Name, Fabric: l.MAC, IP: m.IP})
			}
		}
	}
	return list
}

// below returns the name of the device, or of the bridge, that a fabric link is on.
func (t *expected) below(l *plan.Link) string {
	if host := t.links[t.indexes[plan.LinkKey{Namespace: "", Name: l.Parent}]]; host != nil && host.Host {
		return host.Master
	}
	return l.Parent
}
