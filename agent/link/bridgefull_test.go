package link

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
)

// TestBridgeIsFull: a VM for which a bridge has no port left is reported with that reason,
// and the others go on.
func TestBridgeIsFull(t *testing.T) {
	w := newWorld(t)
	for _, zone := range []string{"zA", "zB", "zC"} {
		w.namespace(zone)
	}
	g := w.secure("cn1", required)
	now := time.Now()
	g.m.cfg.Now = func() time.Time { return now }
	w.pass(g.m, w.neighbours(0, "zA"))
	bridge, ok := g.h.indexOf(plan.LinkKey{Name: "br5v0"})
	if !ok {
		t.Fatal("there is no br5v0")
	}
	w.fill("cn1", bridge)

	want := w.neighbours(0, "zA", "zB", "zC")
	other := &want.Fabrics[2] // on another vnet
	device := want.VXLANs[0]
	device.VNet = 6
	other.VNet = device.VNet
	want.VXLANs = append(want.VXLANs, device)
	result := mustPass(t, g.m, clone(want))
	if len(result.Failures) != 1 || result.Failures[0].Object != (plan.Object{Kind: plan.ObjectFabric, MAC: mac(11)}) || !errors.Is(result.Failures[0].Err, plan.ErrBridgeFull) {
		t.Errorf("failures: %v, want one, of the VM without a port", result.Failures)
	}
	have, err := g.h.Dump(context.Background(), []string{"zA", "zC"})
	if err != nil {
		t.Fatal(err)
	}
	byKey := have.ByKey()
	for _, name := range []string{"port0", "port2"} {
		if l := byKey[plan.LinkKey{Name: name}]; l == nil || !l.Up {
			t.Errorf("%s is not there, or down", name)
		}
	}
	w.raw("cn1", unix.RTM_DELLINK, 0, func(e *wire.Encoder) {
		e.LinkHeader(0, 0, 0)
		e.AttrText(unix.IFLA_IFNAME, "filler0")
	})
	now = now.Add(maxDelay)
	w.pass(g.m, want)
}

// fill makes links until a bridge takes no more.
func (w *world) fill(node string, bridge int32) {
	w.t.Helper()
	sp, err := openNamespaceConn(node, filepath.Join(w.dir, node))
	if err != nil {
		w.t.Fatal(err)
	}
	defer sp.close()
	for i := range 2000 {
		var e wire.Encoder
		e.LinkHeader(0, 0, 0)
		e.AttrText(unix.IFLA_IFNAME, fmt.Sprintf("filler%d", i))
		e.Attr32(unix.IFLA_MASTER, uint32(bridge))
		e.Nest(unix.IFLA_LINKINFO, func() { e.AttrText(unix.IFLA_INFO_KIND, plan.KindVeth) })
		_, err := sp.conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWLINK, Flags: netlink.Request | netlink.Acknowledge | flagsCreate}, Data: e.B})
		if errors.Is(err, unix.EXFULL) {
			return
		}
		if err != nil {
			w.t.Fatalf("link %d: %v", i, err)
		}
	}
	w.t.Fatal("the bridge takes more than 2,000 ports")
}
