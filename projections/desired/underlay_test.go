package desired_test

import (
	"slices"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/desired"
	"rutter/projections/internal/worldtest"
	"rutter/projections/rules"
)

// A node that receives VXLAN packets at a port of its own has its device there, and each
// other node sends to that port; the same from deltas as from the whole.
func TestVXLANPortOfANode(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	near, far := changetest.UUID(11), changetest.UUID(12)
	touches := desired.NewTouches(near)
	touches.Reset()
	w.Must(`update vm #22# {"state": "stopped"}`)
	was := w.State.UnderlayNIC(far)
	w.Must(`update server #12# {"vxlan_port": 4790}`)
	touches.Note(was, w.State.UnderlayNIC(far))
	if touches.Whole() {
		t.Error("another node's port makes all be computed anew")
	}
	delta := touches.Delta(w.State)
	whole := desired.Of(w.State, near)
	if len(whole.FDB) != 1 || whole.FDB[0].Port != 4790 || !slices.Equal(delta.FDB, whole.FDB) {
		t.Errorf("near to the node with port 4790: %+v, by the delta %+v", whole.FDB, delta.FDB)
	}
	if got, ok := desired.NewEntries(w.State, near).FDB(10, log.MAC{0, 0, 0, 0, 2, 1}); !ok || got != whole.FDB[0] {
		t.Errorf("asked for alone: %+v", got)
	}
	other := desired.Of(w.State, far)
	if other.VXLANs[0].Port != 4790 || other.FDB[0].Port != 4789 || whole.VXLANs[0].Port != 4789 {
		t.Errorf("on the node with port 4790: %+v %+v", other.VXLANs, other.FDB)
	}
}

// What a node reports of its underlay bounds its own links, and is named on the nodes
// that send to it and in a trace; a path that is narrower is named there too.
func TestUnderlayMTUOfANode(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	w.Must(`update network #30# {"mtu": 1500}`)
	w.Must(`update network #31# {"mtu": 1446}`)
	if p := desired.Of(w.State, changetest.UUID(11)).Problems; len(p) != 0 {
		t.Fatalf("problems of a network that fits: %v", p)
	}
	touches := desired.NewTouches(changetest.UUID(11))
	touches.Reset()
	was := w.State.UnderlayNIC(changetest.UUID(12))
	w.Must(`update server #12# {"underlay_mtu": 1400}`)
	if touches.Note(was, w.State.UnderlayNIC(changetest.UUID(12))); !touches.Whole() {
		t.Error("a node near does not look at what fits anew")
	}
	narrow := desired.Of(w.State, changetest.UUID(12))
	if narrow.VXLANs[0].MTU != 1350 || narrow.Fabrics[0].MTU != 1346 || len(narrow.Problems) != 1 || !strings.Contains(narrow.Problems[0].Reason, "its MTU 1446 does not fit the underlay of this node, which carries 1346") {
		t.Errorf("on the narrow node: %+v, fabric MTU %d, %v", narrow.VXLANs, narrow.Fabrics[0].MTU, narrow.Problems)
	}
	near := desired.Of(w.State, changetest.UUID(11))
	if near.Fabrics[0].MTU != 1446 || len(near.Problems) != 1 || near.Problems[0].ID != changetest.UUID(12).String() || !strings.Contains(near.Problems[0].Reason, "its underlay interface has MTU 1400") {
		t.Errorf("near the narrow node: fabric MTU %d, %v", near.Fabrics[0].MTU, near.Problems)
	}
	found := func() (codes []string) {
		for _, f := range desired.NewTrace(w.State, changetest.UUID(21).String(), changetest.UUID(22).String()).Findings {
			codes = append(codes, f.Code)
		}
		return codes
	}
	if got := found(); !slices.Contains(got, "underlay-mtu") || !slices.Contains(got, "underlay-differs") {
		t.Errorf("the trace finds %v", got)
	}
	w.Must(`update server #12# {"underlay_mtu": 1500}`, `update server #11# {"underlay_mtu": 1500, "underlay_paths": ["`+w.State.UnderlayNIC(changetest.UUID(12)).IP.String()+` 1400"]}`)
	if got := found(); !slices.Contains(got, "underlay-path") || slices.Contains(got, "underlay-differs") {
		t.Errorf("over a narrow path the trace finds %v", got)
	}
	w.Must(`update network #31# {"mtu": 1346}`)
	if got := found(); slices.ContainsFunc(got, func(code string) bool { return strings.HasPrefix(code, "underlay-") }) {
		t.Errorf("with an MTU that fits the trace finds %v", got)
	}
}

// TestDeltaTellsNewProblems: a NIC of a CN whose underlay is too narrow for links here is a
// problem of the whole, so a delta that meets the first such NIC asks for the whole.
func TestDeltaTellsNewProblems(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	w.Must(`update network #30# {"mtu": 1500}`)
	w.Must(`update network #31# {"mtu": 1446}`)
	near := changetest.UUID(11)
	w.Must(`update server #12# {"underlay_mtu": 1400}`)
	r, _ := w.State.NICRow(log.MAC{0, 0, 0, 0, 2, 1})
	nic := r.NIC()
	w.Must(`delete nic 000000000201 {}`)
	held := desired.Of(w.State, near)
	touches := desired.NewTouches(near)
	touches.Reset()
	touches.Given(&held)
	w.Must(`create nic {"mac": "00:00:00:00:02:01", "belongs_to_type": "zone", "belongs_to_uuid": "#22#", "owner_uuid": "#1#", "cn_uuid": "#12#", "network_uuid": "#31#"}`)
	r, _ = w.State.NICRow(nic.MAC)
	touches.Note(nil, r.NIC())
	touches.Delta(w.State)
	if now := desired.Of(w.State, near).Problems; len(held.Problems) != 0 || len(now) != 1 || !touches.Whole() {
		t.Errorf("problems before %v, now %v, whole %v", held.Problems, now, touches.Whole())
	}
}
