package designation

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// largePool is the part of the servers, in percent, that is kept for large VMs: those
// with the most free memory.
const largePool = 15

// setHints turns affinity into hints; a rule that must be met and cannot be leaves none.
func (r *run) setHints() {
	if len(r.req.affinity) == 0 {
		r.skip = "No affinity found"
	} else {
		r.view(func(s *projections.State) { r.looked += s.Count(log.KindVM) / 16 })
	}
	var failure string
	if r.hints, failure = r.req.localityOf(r.view, &r.tickets); failure != "" {
		r.reasons["*"] = failure
		r.list = nil
	}
}

// on are the servers of VMs of the owner, and their racks.
func (r *run) on(vms []log.UUID) (servers map[log.UUID]bool, racks map[string]bool) {
	servers, racks = map[log.UUID]bool{}, map[string]bool{}
	for _, uuid := range vms {
		if cn, known := r.req.serverOf(r.view, &r.tickets, uuid); known {
			servers[cn] = true
			r.view(func(s *projections.State) {
				if rec, ok := s.Get(log.KindServer, cn.String()); ok {
					racks[rec.Object.(*log.Server).RackIdentifier] = true
				}
			})
		}
	}
	delete(racks, "")
	return servers, racks
}

// keepStrict meets hints that must be met: on none of the servers of far, and on the one
// server that has all of near.
func (r *run) keepStrict() {
	switch {
	case !r.hints.strict:
		r.skip = "No strict locality requested"
		return
	case len(r.hints.near) == 0 && len(r.hints.far) == 0:
		r.skip = "No near or far localities requested"
		return
	}
	far, _ := r.on(r.hints.far)
	near, _ := r.on(r.hints.near)
	all := true
	for _, uuid := range r.hints.near {
		_, known := r.req.serverOf(r.view, &r.tickets, uuid)
		all = all && known
	}
	r.filter(func(c *candidate) string {
		switch {
		case far[c.UUID]:
			return "exclude: it has a VM that must be far"
		case len(r.hints.near) > 0 && (!all || len(near) != 1 || !near[c.UUID]):
			return "exclude: it does not have all VMs that must be near"
		}
		return ""
	})
}

// prefer keeps those of whom is says yes, if there are any.
func (r *run) prefer(is func(c *candidate) bool) {
	if slices.ContainsFunc(r.list, is) {
		r.list = slices.DeleteFunc(slices.Clone(r.list), func(c *candidate) bool { return !is(c) })
	}
}

// keepNear meets hints as far as there are servers: without hints, other racks and else
// other servers than those of the owner's VMs; far comes before near.
func (r *run) keepNear() {
	if r.hints.strict {
		r.skip = "strict locality was requested"
		return
	}
	if len(r.hints.near) == 0 && len(r.hints.far) == 0 {
		racks := map[string]bool{}
		for _, c := range r.list {
			if c.promised.owned > 0 {
				racks[c.RackIdentifier] = true
			}
		}
		if len(racks) == 0 {
			r.skip = "no VMs of the owner there"
			return
		}
		r.prefer(func(c *candidate) bool { return c.promised.owned == 0 })
		r.prefer(func(c *candidate) bool { return c.RackIdentifier != "" && !racks[c.RackIdentifier] })
		return
	}
	far, farRacks := r.on(r.hints.far)
	if len(far) > 0 {
		r.prefer(func(c *candidate) bool { return !far[c.UUID] })
		r.prefer(func(c *candidate) bool { return c.RackIdentifier != "" && !farRacks[c.RackIdentifier] })
	}
	near, nearRacks := r.on(r.hints.near)
	if len(near) > 0 {
		r.prefer(func(c *candidate) bool { return nearRacks[c.RackIdentifier] })
		r.prefer(func(c *candidate) bool { return near[c.UUID] })
	}
}

// keepSmall keeps some of the emptiest servers for VMs that fit nowhere else.
func (r *run) keepSmall() {
	kept := len(r.list) * largePool / 100
	switch {
	case !r.defaults.FilterLargeServers:
		r.skip = "filter_large_servers is false"
		return
	case kept == 0:
		r.skip = "there are too few servers"
		return
	}
	sorted := slices.Clone(r.list)
	slices.SortFunc(sorted, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(b.left.RAM, a.left.RAM), bytes.Compare(a.UUID[:], b.UUID[:]))
	})
	large := make(map[*candidate]bool, kept)
	for _, c := range sorted[:kept] {
		large[c] = true
	}
	r.filter(func(c *candidate) string {
		if large[c] {
			return "Server is kept for large VMs"
		}
		return ""
	})
}

// spread is how VMs are spread, by the package or the configuration.
func (r *run) spread() string { return cmp.Or(r.req.spread, r.defaults.Spread) }

func (r *run) scoreRAM() {
	weight := r.defaults.UnreservedRAM
	switch r.spread() {
	case SpreadMinRAM:
		weight = max(weight, -weight, 2000)
	case SpreadMaxRAM:
		weight = -max(weight, -weight, 2000)
	case SpreadMinOwner, SpreadRandom:
		r.skip = "pkg or default set to spread with: " + r.spread()
		return
	}
	r.rank(weight, func(c *candidate) int64 { return c.left.RAM })
}

func (r *run) scoreDisk() {
	r.rank(r.defaults.UnreservedDisk, func(c *candidate) int64 { return c.left.Disk })
}

func (r *run) scoreOwner() {
	weight := r.defaults.NumOwnerZones
	if r.spread() == SpreadMinOwner {
		weight = max(weight, -weight, 2000)
	}
	r.rank(weight, func(c *candidate) int64 { return int64(c.promised.owned) })
}

// scorePlatform: a newer platform is better. What is none is the oldest.
func (r *run) scorePlatform() {
	names := make([]string, 0, len(r.list))
	for _, c := range r.list {
		names = append(names, c.CurrentPlatform)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	slices.Reverse(names)
	at := make(map[string]int64, len(names))
	for i, name := range names {
		at[name] = int64(i)
	}
	r.rank(r.defaults.CurrentPlatform, func(c *candidate) int64 { return at[c.CurrentPlatform] })
}

func (r *run) scoreOrder() {
	weight := r.defaults.UniformRandom
	if r.spread() == SpreadRandom {
		weight = max(weight, -weight, 2000)
	}
	r.rank(weight, func(c *candidate) int64 { return int64(r.order(c) >> 1) })
}

// order is a number that follows from the VM and the server, as evenly as a random one.
func (r *run) order(c *candidate) uint64 {
	h := fnv.New64a()
	h.Write(r.req.VM[:])
	h.Write(c.UUID[:])
	// FNV changes its high bits little at the end.
	n := h.Sum64()
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	n ^= n >> 33
	return n
}

func (r *run) compareOrder(a, b *candidate) int {
	return cmp.Or(cmp.Compare(r.order(a), r.order(b)), bytes.Compare(a.UUID[:], b.UUID[:]))
}

// rank adds to the scores: the candidate with the least value gets the whole weight, that
// with the greatest none, the others by their rank; equal values are one rank. A weight
// below 0 turns the order round.
func (r *run) rank(weight int64, value func(c *candidate) int64) {
	if weight == 0 {
		r.skip = "Resolved score weight to 0; no changes"
		return
	}
	values := make([]int64, len(r.list))
	for i, c := range r.list {
		values[i] = value(c)
	}
	ranks := slices.Clone(values)
	slices.Sort(ranks)
	ranks = slices.Compact(ranks)
	size := weight * 1000
	if weight < 0 {
		slices.Reverse(ranks)
		size = -size
	}
	place := make(map[int64]int64, len(ranks))
	for i, v := range ranks {
		place[v] = int64(len(ranks) - 1 - i)
	}
	for i, c := range r.list {
		gain := size
		if len(ranks) > 1 {
			gain = size * place[values[i]] / int64(len(ranks)-1)
		}
		c.score += gain
		if len(r.reasons) < MaxShown {
			r.reasons[c.UUID.String()] = "increased score by " + Decimal(gain)
		}
	}
}

// Decimal is a score as a number with a point.
func Decimal(n int64) string { return fmt.Sprintf("%d.%06d", n/1_000_000, n%1_000_000) }
