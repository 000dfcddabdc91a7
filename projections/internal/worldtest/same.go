package worldtest

import (
	"fmt"
	"slices"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/desired"
)

// SameAnswers compares two states in everything that they can be asked.
func SameAnswers(t changetest.Tester, got, want *projections.State) {
	if got.Sum() != want.Sum() || got.Len() != want.Len() {
		t.Fatalf("sum %s of %d objects, want %s of %d", got.Sum(), got.Len(), want.Sum(), want.Len())
	}
	t.Helper()
	if g, w := string(got.Dump()), string(want.Dump()); g != w {
		t.Fatalf("dump\n%s\nwant\n%s", g, w)
	}
	g, w := answers(got), answers(want)
	for i := range w {
		if g[i] != w[i] {
			t.Fatalf("got  %s\nwant %s", g[i], w[i])
		}
	}
}

// answers asks s about everything that its objects name.
func answers(s *projections.State) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	cns := s.CNs(log.AllScope())
	say("cns %v", cns)
	scopes := []log.Scope{log.AllScope()}
	for r := range s.List(log.KindNIC) {
		nic := r.Object.(*log.NIC)
		scopes = append(scopes, s.ScopesOf(log.KindNIC, nic.ID())...)
		holder, ok := s.NICAt(nic.NetworkUUID, nic.IP)
		say("at %s: %v %v", nic.IP, holder.Object, ok)
		for vnet := uint32(0); vnet < 60; vnet += 10 {
			at, ok := s.VL2(vnet, nic.MAC)
			mac, at3, ok3 := s.VL3(vnet, nic.IP)
			say("%s %s on %d: %v %v %v %v %v", nic.MAC, nic.IP, vnet, at, ok, mac, at3, ok3)
		}
		say("of %s: %s", nic.BelongsToUUID, IDs(slices.Collect(s.NICsOf(nic.BelongsToUUID))))
	}
	for r := range s.List(log.KindNetwork) {
		n := r.Object.(*log.Network)
		say("on network %s: %s", n.UUID, IDs(slices.Collect(s.NICsOn(n.UUID))))
		say("on vnet %d: %s", n.VNetID, IDs(slices.Collect(s.NICsOnVNet(n.VNetID))))
		say("on tag %s: %s", n.NICTag, IDs(slices.Collect(s.NetworksOn(n.NICTag))))
	}
	for _, cn := range cns {
		at, ok := s.UnderlayOf(cn)
		say("underlay of %s: %v %v %s", cn, at, ok, IDs(slices.Collect(s.UnderlayNICs(cn))))
		say("interest of %s: %v", cn, s.Interest(cn))
		say("on %s: %s %s %s", cn, IDs(slices.Collect(s.NICsOnCN(cn))), IDs(slices.Collect(s.VMsOn(cn))), IDs(slices.Collect(s.VMMsOn(cn))))
		say("links of %s: %+v", cn, desired.Of(s, cn))
		scopes = append(scopes, s.Interest(cn)...)
	}
	for r := range s.List(log.KindVM) {
		say("vmms of %s: %s", r.Object.ID(), IDs(slices.Collect(s.VMMsOf(r.Object.(*log.VM).UUID))))
	}
	slices.SortFunc(scopes, log.Scope.Compare)
	for _, scope := range slices.Compact(scopes) {
		say("%s: %v %s", scope, s.CNs(scope), IDs(slices.Collect(s.InScope(scope))))
	}
	return out
}

func IDs(records []projections.Record) string {
	var out []string
	for _, r := range records {
		out = append(out, r.Object.Kind().String()+" "+r.Object.ID())
	}
	return fmt.Sprint(out)
}

func SameDesired(t changetest.Tester, got, want desired.Links) {
	t.Helper()
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Fatalf("desired\n%s\nwant\n%s", g, w)
	}
}

// SameDigest holds the digest that was kept against one that is made anew.
func SameDigest(t changetest.Tester, s *projections.State, scope log.Scope) {
	t.Helper()
	var want log.Digest
	encoder := log.NewEncoder()
	for r := range s.InScope(scope) {
		b, err := encoder.Object(r.Object)
		if err != nil {
			t.Fatal(err)
		}
		want = want.Add(log.DigestOf(r.Object.Kind(), r.Object.ID(), r.Revision, b))
	}
	if got := s.Digest(scope); got != want {
		t.Fatalf("digest of %s is %s, of its objects %s", scope, got, want)
	}
}
