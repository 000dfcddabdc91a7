package main

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"rutter/api/access"
	"rutter/api/allow"
	"rutter/log"
	"rutter/projections"
)

// grantFollower has a server do what the log's grants say: it knows what programs
// without a certificate may do, and has readers whose grant changed come anew.
type grantFollower struct {
	view   viewer
	cutOff func(match func(access.Identity) bool) int

	foreign atomic.Pointer[[]foreignGrant]
	seen    map[string]log.Seq // of the grants of readers
}

// foreignGrant is one of a program without a certificate.
type foreignGrant struct {
	net         netip.Prefix
	read, write []string // surfaces
}

// run follows until ctx ends.
func (f *grantFollower) run(ctx context.Context) error {
	tick := time.NewTicker(trustEvery)
	defer tick.Stop()
	for {
		f.look()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (f *grantFollower) look() {
	readers := make(map[string]log.Seq)
	var foreign []foreignGrant
	f.view(func(state *projections.State) {
		for r := range state.List(log.KindGrant) {
			g := r.Object.(*log.Grant)
			if source, ok := strings.CutPrefix(g.Subject, "foreign:"); ok {
				foreign = append(foreign, foreignGrant{sourceNet(source), g.Read, g.Write})
			} else {
				readers[g.Subject] = r.Seq
			}
		}
	})
	slices.SortStableFunc(foreign, func(a, b foreignGrant) int { return cmp.Compare(b.net.Bits(), a.net.Bits()) }) // the narrowest decides
	f.foreign.Store(&foreign)
	changed := make(map[string]bool)
	for subject, seq := range readers {
		changed[subject] = f.seen[subject] != seq
	}
	for subject := range f.seen {
		_, there := readers[subject]
		changed[subject] = changed[subject] || !there
	}
	if f.seen != nil { // at the start nobody is connected
		f.cutOff(func(id access.Identity) bool { return id.Role == access.Reader && changed[id.Actor()] })
	}
	f.seen = readers
}

// sourceNet reads what the log has checked: an address, or a network.
func sourceNet(source string) netip.Prefix {
	if a, err := netip.ParseAddr(source); err == nil {
		return netip.PrefixFrom(a, a.BitLen())
	}
	p, err := netip.ParsePrefix(source)
	if err != nil {
		return netip.Prefix{} // contains nobody
	}
	return p
}

// of returns what a program at an address may do on a surface; ok is false if no
// grant is about it.
func (f *grantFollower) of(ip netip.Addr, surface string) (right allow.Right, ok bool) {
	rows := f.foreign.Load()
	if rows == nil {
		return allow.None, false
	}
	for _, g := range *rows {
		switch {
		case !g.net.Contains(ip.Unmap().WithZone("")):
			continue
		case slices.Contains(g.write, surface):
			return allow.Write, true
		case slices.Contains(g.read, surface):
			return allow.Read, true
		}
		return allow.None, true
	}
	return allow.None, false
}
