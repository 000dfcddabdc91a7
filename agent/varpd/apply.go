package varpd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"rutter/agent/link/plan"
	"rutter/varp"
)

// batchSteps are the steps that follow from some answers, in the order of execution. A
// neighbour releases the packets that wait for it, so its forwarding entry is set
// before it and removed after it.
type batchSteps struct {
	setForwards, setNeighs, delNeighs, delForwards []plan.Step
}

func (b *batchSteps) all() []plan.Step {
	byNamespace := func(x, y plan.Step) int { return cmp.Compare(x.Namespace, y.Namespace) }
	slices.SortStableFunc(b.setNeighs, byNamespace)
	slices.SortStableFunc(b.delNeighs, byNamespace)
	return slices.Concat(b.setForwards, b.setNeighs, b.delNeighs, b.delForwards)
}

// takeResolutions programs the first answer and those queued behind it, and then
// notifies the waiters.
func (d *Daemon) takeResolutions(ctx context.Context, first resolution) {
	now := time.Now()
	var steps batchSteps
	var done []*query
	var failed []bool
	for got := first; ; {
		if a := d.take(&got); a != nil {
			done = append(done, a)
			failed = append(failed, d.apply(a, &got, now, &steps))
		}
		if len(done) >= batchDelay {
			break
		}
		select {
		case got = <-d.resolutions:
			continue
		default:
		}
		break
	}
	d.evict(&steps)
	whole := d.do(ctx, steps.all())
	for i, a := range done {
		if whole && !failed[i] { // otherwise a key in doubt is asked again
			d.answered(a.key, a.sentAt)
		}
	}
}

// retryAfter is the pause before an entry that could not be checked is asked again.
const retryAfter = 10 * time.Second

// errFamily: a VXLAN device sends either by IPv4 or by IPv6, fixed when it is made.
var errFamily = errors.New("varpd: the VXLAN device cannot send to an underlay address of that family")

// canReach reports whether the device of a vnet, if there is one, can send to an
// underlay address.
func (d *Daemon) canReach(vnet uint32, to netip.Addr) bool {
	v, ok := d.links.vxlans[vnet]
	return !ok || !v.local.IsValid() || v.local.Is4() == to.Unmap().Is4()
}

// apply updates the tables from an answer and notes the steps that follow. It reports
// whether there was no answer.
func (d *Daemon) apply(a *query, got *resolution, now time.Time, steps *batchSteps) (failed bool) {
	absent := errors.Is(got.err, varp.ErrNotFound)
	if got.err == nil && !d.canReach(a.key.vnet, got.at.Addr) {
		got.err = fmt.Errorf("%w: %s for vnet %d", errFamily, got.at.Addr, a.key.vnet)
		d.tables.noteAbsent(a.key, now.Add(d.cfg.Negative))
	}
	if got.err != nil && !absent {
		d.stats.failed.Add(1)
		if age := d.tables.ageOf(a.key); age != nil {
			d.tables.setChecked(age, now.Add(retryAfter-d.cfg.RefreshEvery))
		}
		if !errors.Is(got.err, context.Canceled) {
			d.trouble("lookups fail", got.err)
		}
		return true
	}
	d.trouble("lookups fail", nil)
	if absent {
		d.stats.notFound.Add(1)
		d.tables.noteAbsent(a.key, now.Add(d.cfg.Negative))
	} else {
		d.stats.found.Add(1)
		delete(d.tables.absent, a.key)
	}
	if s := d.doubts[a.key]; s != nil {
		s.none = absent
		s.fresh = s.fresh || absent
	}
	if !absent {
		d.noteFresh(a.key, got.at)
	}
	switch {
	case a.key.ip.IsValid() && absent:
		if n := d.tables.neighs[a.key]; n != nil {
			d.removeNeigh(n, steps)
		}
	case a.key.ip.IsValid():
		d.applyVL3(a, got, now, steps)
	case absent:
		if f := d.tables.forwards[a.key]; f != nil {
			for user := range d.tables.users[a.key] { // the neighbours that use it are wrong too
				if s := d.doubts[a.key]; s != nil {
					d.doubt(user, s.until)
				}
				d.ask(user, true)
			}
			d.removeForward(f, steps)
		}
	default:
		d.applyVL2(a, got.at, now, steps)
	}
	return false
}

// applyVL3 programs an address on all links that have it or missed it.
func (d *Daemon) applyVL3(a *query, got *resolution, now time.Time, steps *batchSteps) {
	n := d.tables.neighs[a.key]
	at := make([]linkKey, 0, len(a.links))
	for p := range a.links {
		if d.links.has(p) {
			at = append(at, p)
		}
	}
	if n == nil {
		if len(at) == 0 {
			return // its links were removed meanwhile
		}
		n = d.tables.addNeigh(a.key)
		d.doubtNew(a.key, now)
	} else if n.mac != got.mac {
		for p := range n.links { // existing entries are replaced
			at = append(at, p)
		}
	}
	if f := d.tables.addUser(n, got.mac); f != nil {
		d.removeForward(f, steps)
	}
	d.tables.checked(n.age, now)
	d.applyUnderlay(a, n, got, now, steps)
	slices.SortFunc(at, func(x, y linkKey) int {
		return cmp.Or(cmp.Compare(x.namespace, y.namespace), cmp.Compare(x.link, y.link))
	})
	for _, p := range slices.Compact(at) {
		n.links[p] = true
		steps.setNeighs = append(steps.setNeighs, plan.Step{
			Op: plan.OpSetNeigh, Namespace: p.namespace, Link: p.link, Addr: a.key.ip, MAC: got.mac,
			Object: plan.Object{Kind: plan.ObjectNeigh, VNet: a.key.vnet, IP: a.key.ip},
		})
	}
}

// applyUnderlay programs the forwarding entry of an address's MAC.
func (d *Daemon) applyUnderlay(a *query, n *neigh, got *resolution, now time.Time, steps *batchSteps) {
	k, last := n.forwardKey(), n.said
	n.said = got.at
	f := d.tables.forwards[k]
	switch {
	case d.outdated(k, got.at, last, a.sentAt):
		if f == nil {
			d.askAgain(k) // only an answer about the MAC can show that it is back
		} else {
			d.tables.checked(f.age, now)
		}
	case d.isLocal(k.vnet, got.at.Addr):
		d.applyLocal(k, steps)
	default:
		d.setForward(k, got.at, now, steps)
	}
}

// applyLocal removes the forwarding entry of a MAC on this node: macvlan delivers
// within a node by itself.
func (d *Daemon) applyLocal(k key, steps *batchSteps) {
	if s := d.doubts[k]; s != nil {
		s.none = true
	}
	if f := d.tables.forwards[k]; f != nil {
		d.removeForward(f, steps)
	}
}

// applyVL2 programs a MAC.
func (d *Daemon) applyVL2(a *query, to varp.Underlay, now time.Time, steps *batchSteps) {
	f := d.tables.forwards[a.key]
	var last varp.Underlay
	if f != nil {
		last = f.said
		f.said = to
	}
	if d.outdated(a.key, to, last, a.sentAt) {
		return
	}
	if d.isLocal(a.key.vnet, to.Addr) {
		d.applyLocal(a.key, steps)
		return
	}
	if _, is := d.links.vxlans[a.key.vnet]; !is || f == nil && !a.direct && len(d.tables.users[a.key]) == 0 {
		return // its device was removed meanwhile, or its last user
	}
	if f != nil && a.direct {
		f.to = netip.Addr{} // the kernel no longer has it
	}
	f = d.setForward(a.key, to, now, steps)
	f.said = to
	f.direct = f.direct || a.direct && len(d.tables.users[a.key]) == 0
}

// setForward points a forwarding entry to an underlay address.
func (d *Daemon) setForward(k key, to varp.Underlay, now time.Time, steps *batchSteps) *forward {
	f := d.tables.addForward(k)
	d.tables.checked(f.age, now)
	if s := d.doubts[k]; s != nil {
		s.none = false
	}
	port := to.Port
	if port == d.links.vxlans[k.vnet].port {
		port = 0
	}
	if f.to == to.Addr && f.port == port {
		return f
	}
	f.to, f.port = to.Addr, port
	steps.setForwards = append(steps.setForwards, d.forwardStep(plan.OpSetFDB, f))
	return f
}

func (d *Daemon) forwardStep(op plan.Op, f *forward) plan.Step {
	return plan.Step{
		Op: op, Link: plan.VXLANName(f.key.vnet), MAC: f.key.mac, Addr: f.to, Port: f.port,
		Object: plan.Object{Kind: plan.ObjectFDB, VNet: f.key.vnet, MAC: f.key.mac},
	}
}

// removeForward removes a forwarding entry.
func (d *Daemon) removeForward(f *forward, steps *batchSteps) {
	d.tables.dropForward(f)
	steps.delForwards = append(steps.delForwards, d.forwardStep(plan.OpDelFDB, f))
}

// removeNeigh removes an address from all its links.
func (d *Daemon) removeNeigh(n *neigh, steps *batchSteps) {
	for p := range n.links {
		steps.delNeighs = append(steps.delNeighs, plan.Step{
			Op: plan.OpDelNeigh, Namespace: p.namespace, Link: p.link, Addr: n.key.ip,
			Object: plan.Object{Kind: plan.ObjectNeigh, VNet: n.key.vnet, IP: n.key.ip},
		})
	}
	if f := d.tables.removeNeigh(n); f != nil {
		d.removeForward(f, steps)
	}
}

// evict removes entries beyond MaxEntries.
func (d *Daemon) evict(steps *batchSteps) {
	for e := d.tables.ages.Front(); e != nil && len(d.tables.neighs) > d.cfg.MaxEntries; e = d.tables.ages.Front() {
		d.stats.evicted.Add(1)
		k := e.Value.(*aged).key
		if n := d.tables.neighs[k]; n != nil {
			d.removeNeigh(n, steps)
			continue
		}
		f := d.tables.forwards[k]
		for user := range d.tables.users[k] {
			d.removeNeigh(d.tables.neighs[user], steps)
		}
		if d.tables.forwards[k] == f { // otherwise it went with its last user
			d.removeForward(f, steps)
		}
	}
}

// do executes steps, and reports whether the kernel accepted them all. Refused ones are
// checked again: usually a link was removed meanwhile.
func (d *Daemon) do(ctx context.Context, steps []plan.Step) bool {
	if len(steps) == 0 {
		return true
	}
	d.stats.steps.Add(uint64(len(steps)))
	errs := d.cfg.Kernel.Do(ctx, steps)
	whole := true
	for i, err := range errs {
		if err == nil || ctx.Err() != nil {
			continue
		}
		whole, d.dirty = false, true
		d.stats.refused.Add(1)
		if !errors.Is(err, plan.ErrNotMade) && !errors.Is(err, plan.ErrNoNamespace) {
			d.trouble("the kernel refuses entries", err)
		}
		d.refused(&steps[i])
	}
	if whole {
		d.trouble("the kernel refuses entries", nil)
	}
	return whole
}

// refused forgets what a step should have made, so that the next miss asks and makes it
// again.
func (d *Daemon) refused(s *plan.Step) {
	switch s.Op {
	case plan.OpSetNeigh:
		n := d.tables.neighs[key{vnet: s.Object.VNet, ip: s.Addr}]
		if n == nil {
			return
		}
		delete(n.links, linkKey{s.Namespace, s.Link})
		if len(n.links) == 0 {
			d.tables.removeNeigh(n) // the next scan removes its forwarding entry
		}
	case plan.OpSetFDB:
		if f := d.tables.forwards[key{vnet: s.Object.VNet, mac: s.MAC}]; f != nil {
			f.to = netip.Addr{}
		}
	}
}

// isLocal reports whether an underlay address is this node's own.
func (d *Daemon) isLocal(vnet uint32, a netip.Addr) bool {
	local := d.links.vxlans[vnet].local
	return local.IsValid() && local == a.Unmap()
}
