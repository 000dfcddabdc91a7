package answers_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/answers"
	"rutter/projections/desired"
	"rutter/projections/internal/worldtest"
	"rutter/projections/rules"
)

// textOf prints all that is told of a guest.
func textOf(g answers.Guest) string {
	return fmt.Sprintf("%s of %s on %s (%d.%d): %v via %v, resolvers %v, routes %v, mtu %d, name %q", g.NIC, g.VM, g.Network, g.VNet, g.VLAN, g.IP, g.Gateway, g.Resolvers, g.Routes, g.MTU, g.Hostname)
}

// addAnswered adds to the settled world a second subnet on the vnet of the first, a VM
// on each of two nodes, and a network of IPv6.
func addAnswered(w *worldtest.World) {
	w.Must(`create network {"uuid": "#34#", "name": "six", "nic_tag": "overlay", "subnet": "fd00:1::/64", "gateway": "fd00:1::1", "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10}`,
		`create network {"uuid": "#35#", "name": "more", "nic_tag": "overlay", "subnet": "10.5.0.0/24", "owner_uuids": ["#1#"], "fabric": true, "vnet_id": 10, "vlan_id": 2}`,
		`create vm {"uuid": "#23#", "owner_uuid": "#1#", "server_uuid": "#11#", "alias": "web0", "state": "running"}`,
		`create nic {"mac": "020000000007", "belongs_to_type": "zone", "belongs_to_uuid": "#23#", "owner_uuid": "#1#", "cn_uuid": "#11#", "network_uuid": "#31#"}`,
		`create nic {"mac": "020000000008", "belongs_to_type": "zone", "belongs_to_uuid": "#23#", "owner_uuid": "#1#", "cn_uuid": "#11#", "network_uuid": "#34#"}`,
		`create nic {"mac": "020000000009", "belongs_to_type": "zone", "belongs_to_uuid": "#24#", "owner_uuid": "#1#", "cn_uuid": "#12#", "network_uuid": "#34#"}`,
		`create nic {"mac": "02000000000a", "belongs_to_type": "zone", "belongs_to_uuid": "#24#", "owner_uuid": "#1#", "cn_uuid": "#12#", "network_uuid": "#35#"}`,
		`create nic {"mac": "02000000000b", "belongs_to_type": "zone", "belongs_to_uuid": "#24#", "owner_uuid": "#1#", "cn_uuid": "#12#", "network_uuid": "#31#", "ip": "10.0.0.1"}`)
}

func mac(last byte) log.MAC { return log.MAC{2, 5: last} }

func TestGuest(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	addAnswered(w)
	for nic, want := range map[log.MAC]string{
		mac(7): `02:00:00:00:00:07 of #23# on #31# (10.2): 10.0.0.5/24 via 10.0.0.1, resolvers [10.0.0.2 8.8.8.8], routes [{10.9.0.0/16 10.0.0.9}], mtu 1446, name "web0"`,
		mac(8): `02:00:00:00:00:08 of #23# on #34# (10.0): fd00:1::2/64 via fd00:1::1, resolvers [10.0.0.2 8.8.8.8], routes [], mtu 1450, name "web0"`,
	} {
		g, ok := answers.Of(w.State, changetest.UUID(11), nic)
		if got := textOf(g); !ok || got != changetest.Expand(want) {
			t.Errorf("of %s: %v, %s\nwant %s", nic, ok, got, changetest.Expand(want))
		}
	}
	for _, on := range []bool{true, false} {
		w.Must(fmt.Sprintf(`update network #31# {"dhcp": %v}`, on))
		four, _ := answers.Of(w.State, changetest.UUID(11), mac(7))
		six, _ := answers.Of(w.State, changetest.UUID(11), mac(8))
		if four.DHCP != on || six.DHCP {
			t.Errorf("dhcp %v: told as %v, and of another network as %v", on, four.DHCP, six.DHCP)
		}
	}
	underlay := log.MAC{4: 1}
	if r, ok := w.State.NICRow(underlay); !ok || r.CN() != changetest.UUID(11) {
		t.Fatalf("%s is no NIC of the node", underlay)
	}
	for _, not := range []struct {
		cn  int
		nic log.MAC
		why string
	}{
		{12, mac(7), "a NIC of another node"},
		{11, mac(9), "a NIC of another node"},
		{11, mac(99), "no NIC"},
		{11, underlay, "the node's own NIC"},
		{13, mac(7), "a node without an underlay"},
	} {
		if g, ok := answers.Of(w.State, changetest.UUID(uint64(not.cn)), not.nic); ok {
			t.Errorf("%s is answered: %+v", not.why, g)
		}
	}
}

// TestGuestIsAsDesired: what is told of a NIC is what its node's kernel has.
func TestGuestIsAsDesired(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	addAnswered(w)
	n := 0
	for _, cn := range []log.UUID{changetest.UUID(11), changetest.UUID(12), changetest.UUID(13)} {
		links := map[log.MAC]desired.Fabric{}
		for _, f := range desired.Of(w.State, cn).Fabrics {
			links[f.MAC] = f
		}
		for r := range w.State.List(log.KindNIC) {
			mac := r.Object.(*log.NIC).MAC
			f, linked := links[mac]
			g, ok := answers.Of(w.State, cn, mac)
			if ok != linked {
				t.Errorf("%s on %s: told %v, linked %v", mac, cn, ok, linked)
				continue
			}
			if !ok {
				continue
			}
			n++
			told := fmt.Sprint(g.VNet, g.VLAN, g.MTU, g.VM, []netip.Prefix{g.IP}, g.Gateway, g.Routes, g.Resolvers)
			if want := fmt.Sprint(f.VNet, f.VLAN, f.MTU, f.VM, f.Addresses, f.Gateway, f.Routes, f.Resolvers); told != want {
				t.Errorf("%s is told %s, and has %s", mac, told, want)
			}
		}
	}
	if n < 6 {
		t.Errorf("%d links were compared", n)
	}
}

// TestNeighbourOfTheSameNetwork: an address is answered by the NIC that has it on the
// asking NIC's network, and no other network is looked at.
func TestNeighbourOfTheSameNetwork(t *testing.T) {
	w := worldtest.Settled(t, rules.Decide)
	addAnswered(w)
	four, _ := answers.Of(w.State, changetest.UUID(11), mac(7))
	six, _ := answers.Of(w.State, changetest.UUID(11), mac(8))
	for _, c := range []struct {
		of   answers.Guest
		ip   string
		want string
	}{
		{four, "10.0.0.3", "00:00:00:00:02:00"},        // on the same node
		{four, "10.0.0.4", "00:00:00:00:02:01"},        // on another
		{four, "::ffff:10.0.0.4", "00:00:00:00:02:01"}, // the same
		{four, "10.0.0.1", "02:00:00:00:00:0b"},        // the gateway's NIC
		{four, "10.0.0.5", ""},                         // its own
		{four, "10.0.0.99", ""},                        // of no NIC
		{four, "10.5.0.1", ""},                         // another network of the VLAN
		{four, "192.168.0.3", ""},                      // the underlay
		{four, "0.0.0.0", ""},
		{six, "fd00:1::3", "02:00:00:00:00:09"},
		{six, "fe80::ff:fe00:9", "02:00:00:00:00:09"},
		{six, "fe80::ff:fe00:8", ""},     // its own
		{six, "fe80::ff:fe00:b", ""},     // on another network of the vnet
		{six, "fe80::ff:fe00:63", ""},    // of no NIC
		{six, "fe80::1:0:ff:fe00:9", ""}, // not of fe80::/64
		{six, "fe80::9", ""},             // from no MAC
		{six, "fe80::ff:fe00:9%x", ""},
		{six, "10.0.0.4", ""},
	} {
		got, ok := answers.Neighbour(w.State, c.of, netip.MustParseAddr(c.ip))
		if text := got.String(); ok != (c.want != "") || ok && text != c.want {
			t.Errorf("%s asks for %s: got %s, %v, want %q", c.of.NIC, c.ip, got, ok, c.want)
		}
	}
}

// TestHostname: an alias that is no host name is told to no guest.
func TestHostname(t *testing.T) {
	for _, good := range []string{"web0", "Web-0.example", "0", strings.Repeat("a", 63)} {
		if answers.Hostname(good) != good {
			t.Errorf("%q is not taken", good)
		}
	}
	for _, bad := range []string{"", ".", "a.", "-a", "a-", "a b", "$(reboot)", "() { :;}; x", "a\nb", "ä", "a_b", "a..b", strings.Repeat("a", 64), strings.Repeat("a.", 32) + "a"} {
		if got := answers.Hostname(bad); got != "" {
			t.Errorf("%q is taken, as %q", bad, got)
		}
	}
}
