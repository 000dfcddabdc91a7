package desired

import (
	"net/netip"
	"reflect"
	"testing"

	"rutter/log"
)

func TestDiffLinks(t *testing.T) {
	a, b := log.MAC{2}, log.MAC{4}
	before := Links{VXLANs: []VXLAN{{VNet: 7, MTU: 1500}}, FDB: []FDB{{VNet: 7, MAC: a}}, Segments: []Segment{{VNet: 7}}, Fabrics: []Fabric{{MAC: a}}}
	after := Links{
		VXLANs: []VXLAN{{VNet: 7, MTU: 1450}}, FDB: []FDB{{VNet: 7, MAC: b}}, Segments: []Segment{{VNet: 7, Broadcast: true}}, Fabrics: []Fabric{{MAC: a, Security: Security{AnyIP: true}}},
		Peers: []Peer{{7, netip.MustParseAddr("192.0.2.1")}},
	}
	var got []string
	for _, c := range DiffLinks(before, after) {
		got = append(got, c.Action.String()+" "+c.What+" "+c.Key)
	}
	want := []string{"update vxlan sdcvxl7", "update segment br7v0", "update fabric " + a.String(), "create fdb " + b.String() + " on sdcvxl7", "delete fdb " + a.String() + " on sdcvxl7", "create peer 192.0.2.1 on sdcvxl7"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if again := DiffLinks(after, after); len(again) > 0 {
		t.Errorf("of one with itself: %+v", again)
	}
}
