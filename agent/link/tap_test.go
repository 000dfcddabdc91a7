package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"rutter/agent/filter"
	"rutter/agent/link/internal/linktest"
	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// openTap opens a tap of a namespace as QEMU does, and makes it if there is none. Frames
// have no header for offloads, so that a test can write them as they are.
func (w *world) openTap(namespace, name string) (file *os.File, err error) {
	err = w.within(namespace, func() error {
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
	return file, err
}

// hypervisor is a VM behind a tap: its frames go between the tap and eth0 of a namespace,
// where the guest is.
type hypervisor struct {
	tap, eth *os.File
	ended    sync.WaitGroup
}

// boot starts a hypervisor for a guest with a MAC, addresses, and neighbours.
func (w *world) boot(tap, guest string, mac log.MAC, mtu uint32, addresses []netip.Prefix, neighbours map[netip.Addr]log.MAC) *hypervisor {
	w.t.Helper()
	v := &hypervisor{}
	var err error
	if v.tap, err = w.openTap("cn1", tap); err != nil {
		w.t.Fatal(err)
	}
	if v.eth, err = w.openTap(guest, "eth0"); err != nil {
		w.t.Fatal(err)
	}
	index := w.linkNow(guest, "eth0").Index
	w.raw(guest, unix.RTM_NEWLINK, 0, func(e *wire.Encoder) {
		e.Set(&plan.Link{MAC: mac, MTU: mtu}, index, plan.ChangeMAC|plan.ChangeMTU|plan.ChangeUp)
	})
	for _, p := range addresses {
		w.raw(guest, unix.RTM_NEWADDR, flagsReplace, func(e *wire.Encoder) { e.Address(plan.Step{Prefix: p}, index) })
	}
	for ip, mac := range neighbours {
		w.raw(guest, unix.RTM_NEWNEIGH, flagsReplace, func(e *wire.Encoder) {
			e.Neigh(plan.Step{Op: plan.OpSetNeigh, Addr: ip, MAC: mac}, index)
		})
	}
	for _, pair := range [][2]*os.File{{v.tap, v.eth}, {v.eth, v.tap}} {
		v.ended.Go(func() {
			frame := make([]byte, 1<<16)
			for {
				n, err := pair[0].Read(frame)
				if err != nil {
					return
				}
				_, _ = pair[1].Write(frame[:n]) // of a tap that is down
			}
		})
	}
	w.t.Cleanup(v.stop)
	return v
}

func (v *hypervisor) stop() {
	_ = v.tap.Close()
	_ = v.eth.Close()
	v.ended.Wait()
}

// linkNow reads a link of a namespace; its Index is 0 if there is none of that name.
func (w *world) linkNow(namespace, name string) (found wire.RawLink) {
	w.t.Helper()
	sp, err := openNamespaceConn(namespace, w.dir+"/"+namespace)
	if err != nil {
		w.t.Fatal(err)
	}
	defer sp.close()
	list, err := listLinks(sp.conn)
	if err != nil {
		w.t.Fatal(err)
	}
	if i := slices.IndexFunc(list, func(l wire.RawLink) bool { return l.Name == name }); i >= 0 {
		return list[i]
	}
	return found
}

// tapped is a node with the tap rt1 of the VM in zA, beside another node with a VM.
func tapped(t *testing.T, open func(w *world, node string, secure plan.Secure) *guardedNode) (w *world, cn1, cn2 *guardedNode, a, b desired.Links) {
	t.Helper()
	w = newWorld(t)
	w.namespace("zA")
	w.namespace("zB")
	a, b = w.two(0, false)
	a.Fabrics[0].MTU = 1400 // less than the bridge could have
	b.Fabrics[0].MTU = 1400
	cn1, cn2 = open(w, "cn1", required), open(w, "cn2", required)
	cn1.m.Attach(map[log.MAC]desired.Attach{mac(1): {Tap: true, Name: "rt1"}})
	w.pass(cn1.m, clone(a))
	w.pass(cn2.m, clone(b))
	return w, cn1, cn2, a, b
}

// reaches waits until the guest in zA reaches the VM of the other node: the kernel notes the
// carrier of a tap that was just opened from a work queue.
func (w *world) reaches(to string) {
	w.t.Helper()
	w.eventually("zA reaches "+to, func() bool { return w.pingFor(50*time.Millisecond, "zA", addr(to), 8) == nil })
}

// guest boots the VM of tapped.
func (w *world) guest(a desired.Links) *hypervisor {
	w.t.Helper()
	defer w.reaches("fd05::2")
	defer w.reaches("192.168.5.2")
	return w.boot("rt1", "zA", mac(1), 1400, a.Fabrics[0].Addresses, map[netip.Addr]log.MAC{addr("192.168.5.2"): mac(2), addr("fd05::2"): mac(2)})
}

// TestTapTwoNodes: a VM behind a tap reaches a VM of another node, by a hypervisor that opens
// the tap; what the tap is; and frames that are not the NIC's are dropped and counted. The
// tap goes with the NIC, also while it is open.
func TestTapTwoNodes(t *testing.T) {
	w, cn1, _, a, _ := tapped(t, (*world).guard)
	if result := w.pass(cn1.m, clone(a)); len(result.Steps) != 0 {
		t.Fatalf("second pass: got %v, want no step", texts(result.Steps))
	}
	l := w.linkNow("cn1", "rt1")
	bridge := w.linkNow("cn1", "br5v0")
	if l.Kind != plan.KindTap || !l.Up || l.MTU != 1400 || l.User != 0 || l.MAC == mac(1) || l.MAC != plan.TapMAC(0) || l.MasterIndex != bridge.Index || l.Index < plan.FirstIndex || bridge.MTU != 1450 {
		t.Errorf("the tap: %+v, on %+v", l, bridge)
	}
	if mark, ok := plan.ParseMark(l.Alias); !ok || mark.Object != "port 02:00:00:00:00:01" || w.linkNow("zA", "fabric0").Index != 0 {
		t.Errorf("mark %q", l.Alias)
	}
	if rules := cn1.rules(t); len(rules.Ports) != 1 || rules.Ports[0].Index != uint32(l.Index) || rules.Ports[0].Name != "rt1" || len(rules.Ports[0].Addresses) != 2 {
		t.Errorf("rules: %+v", rules.Ports)
	}
	vm := w.guest(a)
	for _, p := range []struct {
		to   string
		size int
	}{{"192.168.5.2", 8}, {"fd05::2", 8}, {"192.168.5.2", 1400 - 28}} {
		if err := w.ping("zA", addr(p.to), p.size); err != nil {
			t.Errorf("%d bytes: %v", p.size, err)
		}
	}
	if err := w.ping("zB", addr("192.168.5.1"), 8); err != nil {
		t.Errorf("from the other node: %v", err)
	}
	if result := w.pass(cn1.m, clone(a)); len(result.Steps) != 0 {
		t.Errorf("the pass while it is open: got %v, want no step", texts(result.Steps))
	}
	// A frame with another's MAC, and one with another's address.
	spoofed := frameTo(mac(2), mac(9), addr("192.168.5.1"), addr("192.168.5.2"))
	other := frameTo(mac(2), mac(1), addr("192.168.5.9"), addr("192.168.5.2"))
	for _, frame := range [][]byte{spoofed, other} {
		if _, err := vm.tap.Write(frame); err != nil {
			t.Fatal(err)
		}
	}
	counted := func() map[filter.Reason]filter.Count {
		c, err := cn1.h.cfg.Filter.Counters(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return c.Ports[uint32(l.Index)]
	}
	w.eventually("the drops are counted", func() bool { c := counted(); return c["mac"].Packets == 1 && c["ip"].Packets == 1 })
	w.pass(cn1.m, desired.Links{})
	if w.linkNow("cn1", "rt1").Index != 0 {
		t.Error("the tap is there without its NIC")
	}
	if _, err := vm.tap.Write(other); err == nil {
		t.Error("the hypervisor still has a tap")
	}
	if len(cn1.rules(t).Ports) != 0 || len(cn1.m.numbers.MACs()) != 0 {
		t.Error("something of the NIC is left")
	}
}

// frameTo is a UDP packet without content.
func frameTo(to, from log.MAC, src, dst netip.Addr) []byte {
	f := slices.Concat(to[:], from[:], []byte{8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0}, src.AsSlice(), dst.AsSlice())
	sum := checksum(f[14:34])
	f[24], f[25] = byte(sum>>8), byte(sum)
	return append(f, 0, 9, 0, 9, 0, 8, 0, 0)
}

func (w *world) eventually(what string, is func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("waited in vain: %s", what)
		}
	}
}

// TestTapStaysWithItsVM: the next process, which no source has told anything yet, leaves a tap
// to the VM that has it open, and so does one that has lost its numbers. Not one packet is lost.
func TestTapStaysWithItsVM(t *testing.T) {
	w, cn1, _, a, _ := tapped(t, (*world).secure)
	w.guest(a)
	index := w.linkNow("cn1", "rt1").Index
	lost := w.pinger("zA", addr("192.168.5.2"))
	text, err := json.Marshal(cn1.m.numbers)
	if err != nil {
		t.Fatal(err)
	}
	var saved plan.Numbers
	if err := json.Unmarshal(text, &saved); err != nil {
		t.Fatal(err)
	}
	for what, numbers := range map[string]plan.Numbers{"with its numbers": saved, "without numbers": {}} {
		h := w.open("cn1")
		h.cfg.Filter = cn1.table
		m := NewManager(ManagerConfig{Kernel: h, Secure: required, Numbers: numbers})
		if result := w.pass(m, clone(a)); len(result.Steps) != 0 || w.linkNow("cn1", "rt1").Index != index {
			t.Errorf("%s: %v", what, texts(result.Steps))
		}
		if got := m.numbers.Attach(mac(1)); got != (desired.Attach{Tap: true, Name: "rt1"}) {
			t.Errorf("%s: attached as %v", what, got)
		}
		m.Attach(map[log.MAC]desired.Attach{}) // a source that has no VM yet
		if result := w.pass(m, clone(a)); len(result.Steps) != 0 {
			t.Errorf("%s, a source without VMs: %v", what, texts(result.Steps))
		}
	}
	time.Sleep(time.Second) // packets go on
	if longest := lost(); longest > patience/2 {
		t.Errorf("no answer for %v", longest)
	}
	if err := w.ping("zA", addr("192.168.5.2"), 8); err != nil {
		t.Error(err)
	}
}

// TestTapHeals: what another program, or the hypervisor by its file, makes of a tap is put
// right, without a change of what the VM has open unless the tap is gone.
func TestTapHeals(t *testing.T) {
	w, cn1, _, a, _ := tapped(t, (*world).secure)
	vm := w.guest(a)
	set := func(l *plan.Link, change plan.Change) func() {
		return func() {
			w.raw("cn1", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.Set(l, w.linkNow("cn1", "rt1").Index, change) })
		}
	}
	for _, d := range []struct {
		name   string
		damage func()
		gone   bool
	}{
		{"down", set(nil, plan.ChangeDown), false},
		{"MTU", set(&plan.Link{MTU: 1200}, plan.ChangeMTU), false},
		{"the guest's MAC", set(&plan.Link{MAC: mac(1)}, plan.ChangeMAC), false},
		{"another VM's MAC", set(&plan.Link{MAC: mac(2)}, plan.ChangeMAC), false},
		{"mark", set(&plan.Link{Alias: "mine", Group: 7}, plan.ChangeMark), false},
		{"no bridge", func() {
			w.raw("cn1", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.Master(w.linkNow("cn1", "rt1").Index, 0) })
		}, false},
		{"static entry", func() {
			w.raw("cn1", unix.RTM_DELNEIGH, 0, func(e *wire.Encoder) {
				e.Static(plan.Step{Op: plan.OpDelStatic, MAC: mac(1)}, w.linkNow("cn1", "rt1").Index)
			})
		}, false},
		{"deleted", func() {
			w.raw("cn1", unix.RTM_DELLINK, 0, func(e *wire.Encoder) { e.LinkHeader(w.linkNow("cn1", "rt1").Index, 0, 0) })
		}, true},
	} {
		t.Run(d.name, func(t *testing.T) {
			index := w.linkNow("cn1", "rt1").Index
			d.damage()
			mustPass(t, cn1.m, clone(a))
			if result := w.pass(cn1.m, clone(a)); len(result.Steps) != 0 {
				t.Errorf("pass after: got %v, want no step", texts(result.Steps))
			}
			if l := w.linkNow("cn1", "rt1"); l.MAC != plan.TapMAC(0) || !l.Up || (l.Index != index) != d.gone {
				t.Errorf("the tap: %+v", l)
			}
			if d.gone {
				vm.stop()
				w.guest(a)
			}
			w.reaches("192.168.5.2")
		})
	}
}

// TestTapWithTheMACOfAnother: the process that has a tap open gives it the MAC of another VM of
// the bridge, which then takes what is for that VM. It is put right from what is heard, and the
// other VM is reached again.
func TestTapWithTheMACOfAnother(t *testing.T) {
	w := newWorld(t)
	for _, zone := range []string{"zA", "zB", "zC"} {
		w.namespace(zone)
	}
	want := w.neighbours(0, "zA", "zB", "zC")
	g := guard(w, want, time.Hour, &linktest.Table{})
	g.m.cfg.Secure = required
	g.m.Attach(map[log.MAC]desired.Attach{mac(10): {Tap: true, Name: "rt1"}})
	w.pass(g.m, clone(want))
	file, err := w.openTap("cn1", "rt1")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := w.ping("zC", addr("192.168.5.11"), 8); err != nil {
		t.Fatal(err)
	}
	raw, err := file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	victim := mac(11)
	request := struct { // struct ifreq, linux/if.h
		name   [unix.IFNAMSIZ]byte
		family uint16
		mac    [22]byte
	}{family: unix.ARPHRD_ETHER}
	copy(request.name[:], "rt1")
	copy(request.mac[:], victim[:])
	if err := raw.Control(func(fd uintptr) {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, unix.SIOCSIFHWADDR, uintptr(unsafe.Pointer(&request)))
		if errno != 0 {
			err = errno
		}
	}); err != nil {
		t.Fatal(err)
	}
	drift := 0
	g.wait("the MAC of another VM", &drift, func() bool { return w.linkNow("cn1", "rt1").MAC == plan.TapMAC(0) })
	w.eventually("the other VM is reached", func() bool {
		g.m.Apply(context.Background(), desired.LinksDelta{})
		mustPass(t, g.m, clone(want))
		return w.pingFor(50*time.Millisecond, "zC", addr("192.168.5.11"), 8) == nil
	})
	if w.linkNow("cn1", "rt1").MAC == victim || drift == 0 {
		t.Errorf("drift %d", drift)
	}
}

// TestTapByParts: what a source tells anew is programmed by the NIC alone, from a link in a
// namespace to a tap, to another name of it while it is open, and back.
func TestTapByParts(t *testing.T) {
	w, cn1, _, a, _ := tapped(t, (*world).secure)
	w.guest(a)
	var attach desired.Attach
	tell := func(to desired.Attach) Result {
		t.Helper()
		attach = to
		changed := cn1.m.Attach(map[log.MAC]desired.Attach{mac(1): to})
		if !slices.Equal(changed, []log.MAC{mac(1)}) {
			t.Fatalf("changed: %v", changed)
		}
		d := deltaBetween(clone(a), clone(a), changed...)
		d.Part.Links.Segments = nil
		result := cn1.m.Apply(context.Background(), d)
		if result.Look || !result.Matched {
			t.Fatalf("%v: look %v, failures %v, %v", to, result.Look, result.Failures, texts(result.Steps))
		}
		return result
	}
	index := w.linkNow("cn1", "rt1").Index
	tell(desired.Attach{Tap: true, Name: "other"})
	if w.linkNow("cn1", "other").Index != index || w.linkNow("cn1", "rt1").Index != 0 {
		t.Error("the tap was not renamed")
	}
	w.reaches("192.168.5.2")
	w.drop("zA")
	w.namespace("zA")
	tell(desired.Attach{Name: "net7"})
	if w.linkNow("cn1", "other").Index != 0 || w.linkNow("zA", "net7").Index == 0 {
		t.Error("not in the namespace under its name")
	}
	if err := w.ping("zA", addr("192.168.5.2"), 8); err != nil {
		t.Error(err)
	}
	tell(desired.Attach{})
	if w.linkNow("zA", "fabric0").Index == 0 || w.linkNow("zA", "net7").Index != 0 {
		t.Error("not renamed in the namespace")
	}
	tell(desired.Attach{Tap: true, Name: "rt1"})
	if w.linkNow("cn1", "rt1").Index == 0 || w.linkNow("cn1", "port0").Index != 0 {
		t.Error("no tap instead of the pair")
	}
	if result := w.pass(cn1.m, clone(a)); len(result.Steps) != 0 {
		t.Errorf("the pass after %v: %v", attach, texts(result.Steps))
	}
}

// TestTapOfAnotherProgram: a link of another program that has the wanted name is not adopted,
// changed or deleted; the NIC says so, and gets its tap when the name is free.
func TestTapOfAnotherProgram(t *testing.T) {
	for _, persistent := range []bool{false, true} {
		w := newWorld(t)
		w.namespace("zA")
		foreign, err := w.openTap("cn1", "rt1")
		if err != nil {
			t.Fatal(err)
		}
		if raw, _ := foreign.SyscallConn(); persistent {
			if err := raw.Control(func(fd uintptr) { err = unix.IoctlSetInt(int(fd), unix.TUNSETPERSIST, 1) }); err != nil {
				t.Fatal(err)
			}
			_ = foreign.Close() // it can be opened by any program now
		}
		before := w.linkNow("cn1", "rt1")
		g := w.secure("cn1", required)
		now := time.Now()
		g.m.cfg.Now = func() time.Time { return now }
		want := w.neighbours(0, "zA")
		g.m.Attach(map[log.MAC]desired.Attach{mac(10): {Tap: true, Name: "rt1"}})
		result := mustPass(t, g.m, clone(want))
		if len(result.Failures) != 1 || !errors.Is(result.Failures[0].Err, plan.ErrForeign) || !strings.Contains(result.Failures[0].Err.Error(), "rename or remove it") || result.Failures[0].Object.MAC != mac(10) {
			t.Errorf("failures: %v", result.Failures)
		}
		mustPass(t, g.m, desired.Links{})
		if l := w.linkNow("cn1", "rt1"); l.Index != before.Index || l.MasterIndex != 0 || l.Alias != "" || l.Up != before.Up {
			t.Errorf("the other program's tap: %+v, before %+v", l, before)
		}
		_ = foreign.Close()
		if persistent {
			w.raw("cn1", unix.RTM_DELLINK, 0, func(e *wire.Encoder) { e.LinkHeader(before.Index, 0, 0) })
		}
		now = now.Add(maxDelay)
		w.pass(g.m, clone(want))
		w.drop("zA")
	}
}

// TestTapWithoutPortSecurity: the NIC is blocked alone, with the remedy, and the other NICs
// are not. A tap that was made with it stays.
func TestTapWithoutPortSecurity(t *testing.T) {
	w, cn1, _, a, _ := tapped(t, (*world).secure)
	m := NewManager(ManagerConfig{Kernel: cn1.h, Numbers: cn1.m.numbers})
	w.namespace("zC")
	other := a.Fabrics[0]
	other.MAC, other.Namespace, other.Addresses = mac(7), "zC", nil
	a.Fabrics = append(a.Fabrics, other)
	result := mustPass(t, m, clone(a))
	if len(result.Failures) != 1 || !errors.Is(result.Failures[0].Err, plan.ErrAttach) || !strings.Contains(result.Failures[0].Err.Error(), "--port-security on") {
		t.Errorf("failures: %v", result.Failures)
	}
	if w.linkNow("cn1", "rt1").Index == 0 || w.linkNow("zC", "fabric1").Index == 0 {
		t.Error("the tap is gone, or the other NIC has no link")
	}
}

// TestTapIsNoDrift: opening, closing and opening a tap again, and what this program makes of
// it, is no change by others.
func TestTapIsNoDrift(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	want := w.neighbours(0, "zA")
	table := &linktest.Table{}
	g := guard(w, want, time.Hour, table)
	g.m.cfg.Secure = required
	g.m.Attach(map[log.MAC]desired.Attach{mac(10): {Tap: true, Name: "rt1"}})
	w.pass(g.m, clone(want))
	for range 3 {
		file, err := w.openTap("cn1", "rt1")
		if err != nil {
			t.Fatal(err)
		}
		_ = file.Close()
	}
	drift := 0
	index := w.linkNow("cn1", "rt1").Index
	w.raw("cn1", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.Set(nil, index, plan.ChangeDown) }) // the first change
	g.wait("put down", &drift, func() bool { return w.linkNow("cn1", "rt1").Up })
	if drift != 1 {
		t.Errorf("drift: %d corrections, want the one", drift)
	}
	w.raw("cn1", unix.RTM_DELLINK, 0, func(e *wire.Encoder) { e.LinkHeader(index, 0, 0) })
	g.wait("deleted", &drift, func() bool { l := w.linkNow("cn1", "rt1"); return l.Up && l.MasterIndex != 0 })
}

// TestDeviceNames: two NICs of a VM get the names that their source says, at once; a third
// that is to have the same name as another waits alone; a name of a link of the guest's own
// is not taken from it; and the guest may rename its links.
func TestDeviceNames(t *testing.T) {
	for _, secure := range []plan.Secure{{}, required} {
		w := newWorld(t)
		w.namespace("zA")
		want := w.neighbours(0, "zA", "zA", "zA")
		for i := range want.Fabrics {
			want.Fabrics[i].Gateway, want.Fabrics[i].Routes, want.Fabrics[i].Addresses = netip.Addr{}, nil, want.Fabrics[i].Addresses[:1]
		}
		want.Neighs = nil
		g := w.secure("cn1", secure)
		now := time.Now()
		g.m.cfg.Now = func() time.Time { return now }
		told := map[log.MAC]desired.Attach{mac(10): {Name: "eth0"}, mac(11): {Name: "eth1"}, mac(12): {Name: "eth0"}}
		g.m.Attach(told)
		result := mustPass(t, g.m, clone(want))
		if len(result.Failures) != 1 || result.Failures[0].Object.MAC != mac(12) || !errors.Is(result.Failures[0].Err, plan.ErrAttach) || !strings.Contains(result.Failures[0].Err.Error(), mac(10).String()) {
			t.Errorf("failures: %v", result.Failures)
		}
		first, second := w.linkNow("zA", "eth0"), w.linkNow("zA", "eth1")
		if first.MAC != mac(10) || second.MAC != mac(11) || w.linkNow("zA", "fabric0").Index != 0 {
			t.Errorf("links: %+v, %+v", first, second)
		}
		if len(g.m.Renamed()) != 0 {
			t.Errorf("renamed: %v", g.m.Renamed())
		}
		// The guest has a link with the name that the third is to have, and renames another.
		w.raw("zA", unix.RTM_NEWLINK, flagsCreate, func(e *wire.Encoder) { e.Bridge(&plan.Link{Name: "eth2", MTU: 1500}, 0) })
		w.raw("zA", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.Set(&plan.Link{Name: "mine"}, second.Index, plan.ChangeName) })
		told[mac(12)] = desired.Attach{Name: "eth2"}
		g.m.Attach(told)
		if result = mustPass(t, g.m, clone(want)); len(result.Failures) != 1 || !errors.Is(result.Failures[0].Err, plan.ErrForeign) {
			t.Errorf("failures: %v", result.Failures)
		}
		if l := w.linkNow("zA", "eth2"); l.Kind != plan.KindBridge || w.linkNow("zA", "mine").Index != second.Index || len(g.m.Renamed()) != 1 {
			t.Errorf("the guest's link: %+v, renamed %v", l, g.m.Renamed())
		}
		told[mac(12)] = desired.Attach{Name: "eth3"}
		g.m.Attach(told)
		now = now.Add(maxDelay)
		w.pass(g.m, clone(want))
		if w.linkNow("zA", "eth3").MAC != mac(12) {
			t.Error("the third has no link")
		}
		if result := w.pass(g.m, clone(want)); len(result.Steps) != 0 {
			t.Errorf("the next pass: %v", texts(result.Steps))
		}
		w.drop("zA")
	}
}

// TestRefusedAttachments: what cannot be a device, or is a name of ours, changes nothing, and
// is said of the NIC.
func TestRefusedAttachments(t *testing.T) {
	w, cn1, _, a, _ := tapped(t, (*world).secure)
	for _, bad := range []desired.Attach{
		{Tap: true},
		{Tap: true, Name: "port7"},
		{Name: "fabric3"},
		{Tap: true, Name: "br5v0"},
		{Tap: true, Name: "sdcvxl9"},
		{Tap: true, Name: "sixteen-letters-"},
		{Name: "a/b"},
		{Name: ".."},
		{Tap: true, Name: "tap%d"},
		{Name: "eth0", User: 7},
		{Tap: true, Name: "rt2", User: desired.NoUser},
	} {
		if changed := cn1.m.Attach(map[log.MAC]desired.Attach{mac(1): bad, mac(99): bad}); len(changed) > 1 {
			t.Errorf("%+v: changed %v", bad, changed)
		}
		result := mustPass(t, cn1.m, clone(a))
		if len(result.Steps) != 0 || len(result.Failures) != 1 || !errors.Is(result.Failures[0].Err, plan.ErrAttach) || result.Failures[0].Object.MAC != mac(1) {
			t.Errorf("%+v: steps %v, failures %v", bad, texts(result.Steps), result.Failures)
		}
	}
	if w.linkNow("cn1", "rt1").Index == 0 {
		t.Error("the tap is gone")
	}
	if changed := cn1.m.Attach(nil); !slices.Equal(changed, []log.MAC{mac(1)}) {
		t.Errorf("changed: %v, want the one that is no failure now", changed)
	}
	if result := w.pass(cn1.m, clone(a)); len(result.Steps)+len(result.Failures) != 0 {
		t.Errorf("afterwards: %+v", result)
	}
}

// TestPartsEndAsPassesWithAttachments (SAFETY B8): whatever sources tell, and whichever NICs
// come and go, changes that are made by parts end with what a pass makes: each NIC with a tap
// has its own, up, with its rules and in its bridge, and there is no other.
func TestPartsEndAsPassesWithAttachments(t *testing.T) {
	parts := 0
	rapid.Check(t, func(t *rapid.T) {
		table := &linktest.Table{}
		f := &plan.Fake{Filter: table, Interfaces: []plan.Interface{{Name: "net0", Index: 2, Addresses: []netip.Addr{addr("10.99.0.1")}}}}
		f.AddNamespace("z1")
		f.AddNamespace("z2")
		now := time.Unix(1_000_000, 0)
		config := ManagerConfig{Kernel: f, Secure: required, Now: func() time.Time { return now }}
		m := NewManager(config)
		held, told := drawNode(t), map[log.MAC]desired.Attach{}
		mustPassTwin(t, m, held)
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			next := drawNode(t)
			for i := range next.Fabrics {
				mac := next.Fabrics[i].MAC
				switch n := rapid.IntRange(0, 7).Draw(t, "attach"); {
				case n < 2:
					told[mac] = desired.Attach{Tap: true, Name: fmt.Sprintf("tap%d-%d", n, mac[5]), User: uint32(n)}
				case n < 4:
					told[mac] = desired.Attach{Name: fmt.Sprintf("eth%d-%d", n, mac[5])}
				case n < 5:
					told[mac] = desired.Attach{}
				}
			}
			if rapid.Bool().Draw(t, "killed") {
				config.Numbers = m.numbers
				m = NewManager(config)
				mustPassTwin(t, m, held)
			}
			result := m.Apply(context.Background(), deltaBetween(held, next, m.Attach(maps.Clone(told))...))
			held = next
			if result.Look || !result.Matched {
				mustPassTwin(t, m, held)
			} else {
				parts++
			}
			again, err := m.Pass(context.Background(), clone(held), true)
			if err != nil || len(again.Steps) > 0 || !again.Matched {
				t.Fatalf("the pass after: %v, steps %v, failures %v", err, texts(again.Steps), again.Failures)
			}
			taps := 0
			for _, w := range held.Fabrics {
				if a := m.numbers.Attach(w.MAC); a.Tap {
					taps++
					l := f.Find(plan.LinkKey{Name: a.Name})
					if l == nil || l.Kind != plan.KindTap || !l.Up || l.Master != plan.BridgeName(w.VNet, w.VLAN) || l.MTU != w.MTU && !w.Hold || l.User != a.User ||
						!slices.ContainsFunc(table.Held.Ports, func(p filter.Port) bool { return p.Index == uint32(l.Index) && p.MAC == w.MAC }) {
						t.Fatalf("%s is to have %v: %v", w.MAC, a, l)
					}
				}
			}
			for _, l := range f.Links {
				if l.Kind == plan.KindTap {
					taps--
				}
			}
			if taps != 0 {
				t.Fatalf("%d taps too few:\n%s", taps, f)
			}
		}
	})
	if parts == 0 {
		t.Error("no change was a part")
	}
}

// TestTapNameIsFreed: a NIC that waits for the name of another one's tap gets it when that
// NIC goes, or is told another name, without a pass.
func TestTapNameIsFreed(t *testing.T) {
	for _, gone := range []bool{true, false} {
		f := &plan.Fake{Filter: &linktest.Table{}, Interfaces: []plan.Interface{{Name: "net0", Index: 2}}}
		m := NewManager(ManagerConfig{Kernel: f, Secure: required})
		both := desired.Links{VXLANs: []desired.VXLAN{{VNet: 5, Local: addr("10.99.0.1"), Port: 4789, MTU: 1450}}, Fabrics: []desired.Fabric{ownNIC(1, 5, ""), ownNIC(2, 5, "")}}
		told := map[log.MAC]desired.Attach{mac(1): {Tap: true, Name: "one"}, mac(2): {Tap: true, Name: "one"}}
		m.Attach(maps.Clone(told))
		if result := mustPass(t, m, clone(both)); len(result.Failures) != 1 || result.Failures[0].Object.MAC != mac(2) {
			t.Fatalf("failures: %v", result.Failures)
		}
		next := clone(both)
		var changed []log.MAC
		if gone {
			next.Fabrics = next.Fabrics[1:]
		} else {
			told[mac(1)] = desired.Attach{Tap: true, Name: "two"}
			if changed = m.Attach(told); !slices.Equal(changed, []log.MAC{mac(1), mac(2)}) {
				t.Errorf("changed: %v, want the one that waits too", changed)
			}
		}
		result := m.Apply(context.Background(), deltaBetween(both, next, changed...))
		for range 3 { // the kernel may have refused the name before the other had left it
			if len(result.Stirred) > 0 && !result.Look {
				result = m.Apply(context.Background(), deltaBetween(next, next, result.Stirred...))
			}
		}
		if l := f.Find(plan.LinkKey{Name: "one"}); result.Look || !result.Matched || l == nil || l.MasterIndex != 0 || l.MarkedPort() != mac(2) {
			t.Errorf("gone %v: look %v, stirred %v, failures %v, the tap %v", gone, result.Look, result.Stirred, result.Failures, l)
		}
	}
}

// TestDriftWhileABatchHangs: a batch of ours that is not acknowledged hides what another program
// does to a link for a bounded time only.
func TestDriftWhileABatchHangs(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	want, _ := w.two(0, false)
	g := guard(w, want, time.Hour, &linktest.Table{})
	g.m.cfg.Secure = required
	g.m.Attach(map[log.MAC]desired.Attach{mac(1): {Tap: true, Name: "rt1"}})
	w.pass(g.m, clone(want))
	g.h.expected.note(nil, nil)
	defer g.h.expected.noted()
	w.raw("cn1", unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.Set(&plan.Link{MTU: 1200}, w.linkNow("cn1", "rt1").Index, plan.ChangeMTU) })
	w.eventually("the change is seen", func() bool {
		_, other := g.h.Observed()
		return other
	})
}

// TestTapIsDownWithoutItsBridge: while a VM runs, port security goes off. Its tap is down, also
// in each pass that follows, so that nothing that the guest sends reaches the node's own stack.
// With port security on again the tap is up in its bridge, and the guest goes on.
func TestTapIsDownWithoutItsBridge(t *testing.T) {
	w, cn1, _, a, _ := tapped(t, (*world).secure)
	w.guest(a)
	index := w.linkNow("cn1", "rt1").Index
	cn1.m.cfg.Secure = plan.Secure{}
	for range 2 {
		mustPass(t, cn1.m, clone(a))
		if l := w.linkNow("cn1", "rt1"); l.Index != index || l.Up || l.MasterIndex != 0 {
			t.Errorf("without port security: %+v", l)
		}
	}
	cn1.m.cfg.Secure = required
	mustPass(t, cn1.m, clone(a))
	if l := w.linkNow("cn1", "rt1"); l.Index != index || !l.Up || l.MasterIndex == 0 {
		t.Errorf("with port security again: %+v", l)
	}
	w.reaches("192.168.5.2")
	if result := w.pass(cn1.m, clone(a)); len(result.Steps) != 0 {
		t.Errorf("a pass after it: %v", texts(result.Steps))
	}
}
