package answer

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// udhcpcScript does with a lease what an ordinary image does, and notes each event.
const udhcpcScript = `#!/bin/sh
event=$1
case $event in
deconfig) ip addr flush dev $interface; ip link set $interface up ;;
bound|renew)
	ip addr replace $ip/$mask dev $interface
	ip link set $interface mtu $mtu
	set -- $staticroutes
	while [ $# -gt 1 ]; do
		if [ $2 = 0.0.0.0 ]; then ip route replace $1 dev $interface; else ip route replace $1 via $2 dev $interface; fi
		shift 2
	done ;;
esac
echo "$event ip=$ip/$mask router=$router dns=$dns mtu=$mtu name=$hostname routes=$staticroutes lease=$lease server=$serverid" >> NOTES
`

// image is a VM that knows DHCP alone: busybox's udhcpc.
type image struct {
	n     *node
	vm    string
	notes string
	cmd   *exec.Cmd
}

// boot starts it.
func (n *node) boot(vm string) *image {
	n.t.Helper()
	i := &image{n: n, vm: vm, notes: filepath.Join(n.dir, vm+".notes")}
	script := filepath.Join(n.dir, vm+".script")
	if err := os.WriteFile(script, []byte(strings.ReplaceAll(udhcpcScript, "NOTES", i.notes)), 0o700); err != nil {
		n.t.Fatal(err)
	}
	i.cmd = exec.Command("busybox", "udhcpc", "-f", "-i", "eth0", "-s", script, "-O", "mtu", "-O", "staticroutes", "-T", "1", "-t", "10", "-A", "1")
	i.cmd.Stderr = os.Stderr
	if err := n.in(vm, i.cmd.Start); err != nil {
		n.t.Fatal(err)
	}
	return i
}

// events are what the script noted.
func (i *image) events() []string {
	b, _ := os.ReadFile(i.notes)
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// await waits for an event after the first so many.
func (i *image) await(event string, after int) (index int, line string) {
	i.n.t.Helper()
	i.n.eventually(event, func() bool {
		for at, one := range i.events() {
			if at >= after && strings.HasPrefix(one, event+" ") {
				index, line = at, one
				return true
			}
		}
		return false
	})
	return index, line
}

func (i *image) signal(s os.Signal) {
	i.n.t.Helper()
	if err := i.cmd.Process.Signal(s); err != nil {
		i.n.t.Fatal(err)
	}
}

func (n *node) pings(vm, to string) {
	n.t.Helper()
	address := netip.MustParseAddr(to)
	if _, err := n.vm(vm).Ping(address, 56, patience); err != nil {
		n.t.Errorf("%s pings %s: %v\n%s", vm, to, err, n.sh(vm, "ip addr; ip route; ip neigh; ip -6 route"))
	}
}

// address6 gives a VM an address of IPv6. The kernel accepts packets to it from its local
// route on, which it makes a while after it has answered (addrconf_dad_work).
func (n *node) address6(vm, address string, bits int) {
	n.t.Helper()
	n.sh(vm, fmt.Sprintf("ip addr add %s/%d dev eth0 nodad", address, bits))
	n.local6(vm, address)
}

// local6 waits until the kernel of a VM accepts packets to an address of its own.
func (n *node) local6(vm, address string) {
	n.t.Helper()
	n.eventually("the local route of "+address, func() bool {
		return strings.Contains(n.sh(vm, "ip -6 route show table local"), "local "+address+" ")
	})
}

// fails waits until the kernel of a VM gives up an address that the log does not have. Soon
// after that it may forget that it asked.
func (n *node) fails(vm, address string) {
	n.t.Helper()
	_, _ = n.vm(vm).Ping(netip.MustParseAddr(address), 56, time.Millisecond)
	n.eventually("the end of the requests for "+address, func() bool {
		out := n.sh(vm, "ip neigh show "+address)
		return out == "" || strings.Contains(out, "FAILED")
	})
}

// An image that knows nothing of Rutter boots by DHCP, and pings; it renews at the node
// alone, and gets another address when the log has another.
func TestImageBootsByDHCP(t *testing.T) {
	if !inside(t) {
		return
	}
	n := newNode(t)
	n.guard("10.0.0.77")
	a, b := n.boot("vm5"), n.boot("vm6")
	at, got := a.await("bound", 0)
	b.await("bound", 0)
	want := "bound ip=10.0.0.5/24 router=10.0.0.1 dns=10.0.0.2 mtu=1446 name=vm50 routes=169.254.0.67/32 0.0.0.0 0.0.0.0/0 10.0.0.1 10.9.0.0/16 10.0.0.6 lease=43200 server=169.254.0.67"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	n.pings("vm5", "10.0.0.6")
	n.pings("vm6", "10.0.0.5")
	n.sh("vm5", "ip route | grep -q '^default via 10.0.0.1 ' && ip route | grep -q '^10.9.0.0/16 via 10.0.0.6 '")

	// A renewal is for the server alone, whose address is resolved to the bridge.
	a.signal(syscall.SIGUSR1)
	at, _ = a.await("renew", at+1)
	bridge := n.sh("", "ip -o link show br10v2 | sed 's/.*link.ether \\([^ ]*\\).*/\\1/'")
	if neighbour := n.sh("vm5", "ip neigh show 169.254.0.67"); !strings.Contains(neighbour, bridge) {
		t.Errorf("the server is resolved to %q, the bridge is %s: the renewal was no unicast", neighbour, bridge)
	}

	// The log gives the NIC another address: the old one is refused, and given up.
	n.cloud.must(fmt.Sprintf(`update nic %s {"ip": "10.0.0.77"}`, mac(5)))
	a.signal(syscall.SIGUSR1)
	at, _ = a.await("nak", at+1)
	if _, got := a.await("bound", at); !strings.HasPrefix(got, "bound ip=10.0.0.77/24 ") {
		t.Errorf("after the refusal: %s", got)
	}
	n.pings("vm5", "10.0.0.6")
	// udhcpc sends a release once, and gives its address up at once: it would be lost if the
	// kernel had to ask for the server's MAC first.
	n.sh("vm5", "ip neigh replace 169.254.0.67 lladdr "+strings.TrimSpace(bridge)+" dev eth0 nud permanent")
	a.signal(syscall.SIGUSR2)
	n.eventually("the release", func() bool { return n.answerer.Counters().Released == 1 })
	n.eventually("the refusal's counter", func() bool { return n.answerer.Counters().Answered[KindNak] > 0 })
	if c := n.answerer.Counters(); c.Malformed != 0 || c.Shortened != 0 {
		t.Errorf("%+v", c)
	}
}

// Without dhcp=true on its network an image gets no address.
func TestNoDHCPUnlessTheNetworkAsks(t *testing.T) {
	if !inside(t) {
		return
	}
	n := newNode(t)
	n.boot("vm15")
	n.boot("vm5").await("bound", 0)
	out, err := n.try("vm15", "busybox udhcpc -n -q -f -i eth0 -s /bin/true -T 1 -t 2")
	if err == nil {
		t.Errorf("vm15 got a lease: %s", out)
	}
}

// The kernel of a VM that was given addresses, and no neighbours, finds those of the log
// and only those. Nothing is flooded.
func TestARPFromTheLog(t *testing.T) {
	if !inside(t) {
		return
	}
	n := newNode(t)
	// Its own address is free, another's is not (arping -D of busybox ends with 1 for one in use).
	n.sh("vm5", "busybox arping -D -c 1 -w 1 -I eth0 10.0.0.5")
	if out, err := n.try("vm5", "busybox arping -D -c 2 -w 5 -I eth0 10.0.0.6"); err == nil {
		t.Errorf("the address of vm6 looks free to vm5: %s", out)
	}
	n.guard() // a VM with rules does not get to ask so for another's
	for _, last := range []string{"5", "6", "15", "16"} {
		n.sh("vm"+last, "ip addr add 10.0.0."+last[len(last)-1:]+"/24 dev eth0")
	}
	n.pings("vm5", "10.0.0.6")
	n.pings("vm15", "10.0.0.6")
	resolved := func(vm string) string {
		return n.sh(vm, "ip neigh show 10.0.0.6")
	}
	// Both asked for the same address, and each got that of its own network.
	if a, b := resolved("vm5"), resolved("vm15"); !strings.Contains(a, mac(6).String()) || !strings.Contains(b, mac(0x16).String()) {
		t.Errorf("vm5 has %q, vm15 has %q", a, b)
	}
	// The gateway is on another node.
	_, _ = n.vm("vm5").Ping(netip.MustParseAddr("10.0.0.1"), 56, 10*time.Millisecond)
	n.eventually("the gateway's MAC", func() bool {
		out, _ := n.try("vm5", "ip neigh show 10.0.0.1")
		return strings.Contains(out, mac(1).String())
	})
	for _, vm := range []string{"vm5", "vm6"} { // so that none of them looks whether the other is still there
		n.sh(vm, "ip neigh flush all")
	}
	seen := n.sh("vm6", "cat /sys/class/net/eth0/statistics/rx_packets")
	before := n.answerer.Counters()
	n.fails("vm5", "10.0.0.99")
	c := n.answerer.Counters()
	if c.Unanswered["br10v2"] == before.Unanswered["br10v2"] || c.Unanswered["br20v0"] != 0 {
		t.Errorf("before %+v, after %+v", before, c)
	}
	if now := n.sh("vm6", "cat /sys/class/net/eth0/statistics/rx_packets"); now != seen {
		t.Errorf("vm6 had %s packets, and %s after a request for another's address", seen, now)
	}
}

// The same for ND: and duplicate address detection of a VM's own address succeeds.
func TestNDFromTheLog(t *testing.T) {
	if !inside(t) {
		return
	}
	n := newNode(t)
	dad := func(vm, ip string) string {
		n.sh(vm, "echo 1 > /proc/sys/net/ipv6/conf/eth0/accept_dad; echo 1 > /proc/sys/net/ipv6/conf/eth0/dad_transmits; ip addr add "+ip+"/64 dev eth0")
		var out string
		n.eventually("the end of DAD", func() bool {
			out = n.sh(vm, "ip -6 addr show dev eth0 to "+ip)
			return !strings.Contains(out, "tentative") || strings.Contains(out, "dadfailed")
		})
		return out
	}
	if out := dad("vm25", "fd00:1::6"); !strings.Contains(out, "dadfailed") {
		t.Errorf("vm25 may have the address of vm26: %s", out)
	}
	n.sh("vm25", "ip addr del fd00:1::6/64 dev eth0")
	n.guard() // a VM with rules does not get to ask so for another's
	for vm, ip := range map[string]string{"vm25": "fd00:1::5", "vm26": "fd00:1::6"} {
		if out := dad(vm, ip); strings.Contains(out, "dadfailed") {
			t.Errorf("%s may not have its own address: %s", vm, out)
		}
		n.local6(vm, ip)
	}
	n.pings("vm25", "fd00:1::6")
	n.pings("vm26", "fd00:1::5")
	before := n.answerer.Counters()
	n.fails("vm25", "fd00:1::99")
	if c := n.answerer.Counters(); c.Unanswered["br10v3"] == before.Unanswered["br10v3"] || c.Malformed != 0 {
		t.Errorf("before %+v, after %+v", before, c)
	}
}
