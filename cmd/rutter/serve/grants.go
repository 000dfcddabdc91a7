package serve

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"rutter/api/auth/allow"
	"rutter/api/auth/matrix"
	"rutter/cmd/rutter/trust"
	"rutter/log"
	"rutter/projections"
)

// grantFollower applies the log's grants to a server. It knows the rights of programs
// without a certificate, closes the connections of those that lost all rights, and
// closes those of readers whose grant has changed, so that they connect again.
type grantFollower struct {
	view   func(fn func(*projections.State))
	cutOff func(match func(matrix.Identity) bool) int
	// cutPrograms closes the connections of programs at matching addresses that have no
	// rights now.
	cutPrograms func(match func(netip.Addr) bool) int

	foreign atomic.Pointer[[]foreignGrant]
	seen    map[string]log.Seq // of the grants, by subject
}

// foreignGrant is a grant of a program without a certificate.
type foreignGrant struct {
	net         netip.Prefix
	read, write []string // surfaces
}

// run follows until ctx ends.
func (f *grantFollower) run(ctx context.Context) error { return trust.Poll(ctx, f.refresh) }

func (f *grantFollower) refresh() {
	grants := make(map[string]log.Seq)
	var foreign []foreignGrant
	f.view(func(state *projections.State) {
		for r := range state.List(log.KindGrant) {
			g := r.Object.(*log.Grant)
			grants[g.Subject] = r.Seq
			if source, ok := strings.CutPrefix(g.Subject, foreignSubject); ok {
				foreign = append(foreign, foreignGrant{sourceNet(source), g.Read, g.Write})
			}
		}
	})
	slices.SortStableFunc(foreign, func(a, b foreignGrant) int { return cmp.Compare(b.net.Bits(), a.net.Bits()) }) // the narrowest network decides
	f.foreign.Store(&foreign)
	if f.seen != nil { // at the start there are no connections
		f.cut(changedGrants(f.seen, grants))
	}
	f.seen = grants
}

// foreignSubject begins the subject of a grant of a program without a certificate.
const foreignSubject = "foreign:"

// changedGrants are the subjects whose grant was made, changed or withdrawn.
func changedGrants(before, now map[string]log.Seq) map[string]bool {
	changed := make(map[string]bool)
	for subject, seq := range now {
		if before[subject] != seq {
			changed[subject] = true
		}
	}
	for subject := range before {
		if _, there := now[subject]; !there {
			changed[subject] = true
		}
	}
	return changed
}

// cut closes the connections of subjects whose grant has changed.
func (f *grantFollower) cut(changed map[string]bool) {
	if len(changed) == 0 {
		return
	}
	f.cutOff(func(id matrix.Identity) bool { return id.Role == matrix.Reader && changed[id.Actor()] })
	var nets []netip.Prefix
	for subject := range changed {
		if source, ok := strings.CutPrefix(subject, foreignSubject); ok {
			nets = append(nets, sourceNet(source))
		}
	}
	f.cutPrograms(func(ip netip.Addr) bool {
		return slices.ContainsFunc(nets, func(n netip.Prefix) bool { return n.Contains(ip) })
	})
}

// sourceNet parses an address or a network, which the log has checked.
func sourceNet(source string) netip.Prefix {
	if a, err := netip.ParseAddr(source); err == nil {
		return netip.PrefixFrom(a, a.BitLen())
	}
	p, err := netip.ParsePrefix(source)
	if err != nil {
		return netip.Prefix{} // contains no address
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
