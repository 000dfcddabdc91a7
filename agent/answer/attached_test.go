package answer

import (
	"context"
	"errors"
	"strings"
	"testing"

	"rutter/agent/filter"
	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/cmd/rutter/netlab"
	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/desired"
)

// TestAnswersOnAttachedLinks: on the links that package link makes, with the rules of
// package filter, an image boots by DHCP, and finds a neighbour of which its kernel has no
// entry.
func TestAnswersOnAttachedLinks(t *testing.T) {
	if !inside(t) {
		return
	}
	n := &node{t: t, cloud: newCloud(t), dir: t.TempDir()}
	n.cloud.must(`update network #32# {"dhcp": true}`)
	n.answerer = New(Config{Log: n.cloud.log()})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- n.answerer.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	table, err := filter.Open(ctx)
	if errors.Is(err, filter.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	kernel, err := link.Open(link.Config{NetNSDir: n.dir, EtcNetNSDir: t.TempDir(), Filter: table})
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	want := desired.Of(n.cloud.state, changetest.UUID(11))
	vms := map[log.MAC]string{}
	for _, f := range want.Fabrics {
		space, err := netlab.Create(n.dir, f.Namespace)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = space.Delete() })
		vms[f.MAC] = f.Namespace
	}
	n.sh("", "ip link add under0 type veth peer name under1; ip addr add "+want.VXLANs[0].Local.String()+"/24 dev under0; ip link set under0 up; ip link set under1 up")
	manager := link.NewManager(link.ManagerConfig{Kernel: kernel, Secure: plan.Secure{On: true, Required: true}, Attached: func(all map[log.MAC]link.Attachment) {
		n.segments, n.ports = nil, nil
		for mac, at := range all {
			n.segments = append(n.segments, Segment{Index: at.Bridge, Name: at.Name, VNet: at.VNet, VLAN: at.VLAN})
			n.ports = append(n.ports, Port{Index: at.Port, Segment: at.Bridge, MAC: mac})
		}
		n.answerer.Update(n.segments, n.ports)
	}})
	if _, err := manager.Pass(ctx, want, true); err != nil {
		t.Fatal(err)
	}
	n.eventually("a socket", func() bool { return n.answerer.Counters().Sockets > 0 })
	// The image knows nothing of what the agent put on its link, and its kernel asks for
	// neighbours itself.
	a, b := vms[mac(0x15)], vms[mac(0x16)]
	fabric := n.sh(a, "ls /sys/class/net >/dev/null; ip -o link | sed -n 's/.*\\(fabric[0-9]*\\)@.*/\\1/p'")
	n.sh(a, "ip neigh flush nud permanent dev "+fabric+"; ip addr flush dev "+fabric+"; ip link set "+fabric+" name eth0; ip link set eth0 up; cd /proc/sys/net/ipv4/neigh/eth0; echo 3 > mcast_solicit; echo 0 > app_solicit")
	i := n.boot(a)
	if _, got := i.await("bound", 0); !strings.HasPrefix(got, "bound ip=10.0.0.5/24 ") {
		t.Error(got)
	}
	n.pings(a, "10.0.0.6")
	n.pings(b, "10.0.0.5")
	n.eventually("the counters", func() bool {
		c := n.answerer.Counters()
		return c.Answered[KindARP] > 0 && c.Answered[KindAck] == 1
	})
}
