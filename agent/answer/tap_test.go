package answer

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openTap opens a tap of a VM's namespace, or of the node's for "", as a hypervisor does, and
// makes it if there is none.
func (n *node) openTap(vm, name string) (file *os.File) {
	n.t.Helper()
	err := n.in(vm, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		ifr, err := unix.NewIfreq(name)
		if err == nil {
			ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
		}
		if err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		file = os.NewFile(uintptr(fd), name)
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return file
}

// tap gives a VM a tap as its port, in place of a pair, with a hypervisor that carries frames
// between it and the VM's eth0.
func (n *node) tap(last int) {
	n.t.Helper()
	vm, tap, port := fmt.Sprintf("vm%x", last), fmt.Sprintf("rt%x", last), fmt.Sprintf("port%x", last)
	n.sh("", "ip link del "+port)
	files := [2]*os.File{n.openTap("", tap), n.openTap(vm, "eth0")}
	at := 0
	for i := range n.ports {
		if n.ports[i].MAC == mac(last) {
			at = i
		}
	}
	bridge := ""
	for _, s := range n.segments {
		if s.Index == n.ports[at].Segment {
			bridge = s.Name
		}
	}
	n.sh("", fmt.Sprintf(`ip link set %[1]s address fe:72:00:00:00:01; ip link set %[1]s addrgenmode none; ip link set %[1]s master %[2]s
		ip link set %[1]s type bridge_slave learning off flood off mcast_flood off bcast_flood off
		bridge fdb replace %[3]s dev %[1]s master static; ip link set %[1]s up`, tap, bridge, mac(last)))
	n.sh(vm, fmt.Sprintf("cd /proc/sys/net; echo 200 > ipv4/neigh/eth0/retrans_time_ms; echo 200 > ipv6/neigh/eth0/retrans_time_ms; echo 0 > ipv6/conf/eth0/accept_dad; ip link set eth0 address %s; ip link set eth0 up", mac(last)))
	n.ports[at].Index = n.index(tap)
	n.update()
	var ended sync.WaitGroup
	for i := range files {
		ended.Go(func() {
			frame := make([]byte, 1<<16)
			for {
				got, err := files[i].Read(frame)
				if errors.Is(err, os.ErrClosed) {
					return
				}
				if err != nil {
					n.t.Logf("tap %d: %v", i, err) // a guest outlives an error of its link
					time.Sleep(time.Millisecond)
					continue
				}
				_, _ = files[1-i].Write(frame[:got]) // of a link that is down
			}
		})
	}
	n.t.Cleanup(func() {
		_ = errors.Join(files[0].Close(), files[1].Close())
		ended.Wait()
	})
}

// TestTapBootsByDHCP: a guest behind a tap, as QEMU has it, gets its address, its neighbours
// and its gateway from the node, of both families, with the rules of port security.
func TestTapBootsByDHCP(t *testing.T) {
	if !inside(t) {
		return
	}
	n := newNode(t)
	n.tap(0x05)
	n.tap(0x25)
	n.guard()
	_, got := n.boot("vm5").await("bound", 0)
	if !strings.HasPrefix(got, "bound ip=10.0.0.5/24 router=10.0.0.1 ") {
		t.Errorf("got %s", got)
	}
	n.boot("vm6").await("bound", 0)
	n.pings("vm5", "10.0.0.6")
	n.pings("vm6", "10.0.0.5")
	n.address6("vm25", "fd00:1::5", 64)
	n.address6("vm26", "fd00:1::6", 64)
	n.pings("vm25", "fd00:1::6")
	n.pings("vm26", "fd00:1::5")
	if c := n.answerer.Counters(); c.Malformed != 0 || c.Shortened != 0 {
		t.Errorf("%+v", c)
	}
}
