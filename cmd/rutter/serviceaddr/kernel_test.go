package serviceaddr

import (
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/cmd/rutter/netlab"
)

// The tests wait for lifetimes in the kernel: more of them at once than there are cores. A
// -parallel on the command line counts instead.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// inNamespace moves the test to a network namespace of its own, which ends with it, with a
// bridge named l0 that has the addresses.
func inNamespace(t *testing.T, own ...string) *kernel {
	t.Helper()
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("needs a network namespace: %v", err)
	}
	if err := errors.Join(netlab.SetUp("lo", true), netlab.AddBridge("l0")); err != nil {
		t.Fatal(err)
	}
	for _, text := range own {
		if err := netlab.AddAddress("l0", netip.MustParsePrefix(text)); err != nil {
			t.Fatal(err)
		}
	}
	k, err := openKernel()
	if err != nil {
		t.Fatal(err)
	}
	k.timeout = time.Minute // on a busy machine the kernel's lock for its links is waited for
	t.Cleanup(func() { _ = k.close() })
	return k
}

func always() bool { return true }

func mustParse(t *testing.T, text string) Address {
	t.Helper()
	a, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func indexOf(t *testing.T, name string) int {
	t.Helper()
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return ifi.Index
}

// gone waits until the kernel has no address, and returns how long that took.
func gone(t *testing.T, k *kernel, a Address, since time.Time) time.Duration {
	t.Helper()
	for {
		all, err := k.find(a.IP())
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 0 {
			return time.Since(since)
		}
		if time.Since(since) > time.Minute {
			t.Fatalf("%s is still there", a)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// The kernel deletes an address that is not renewed, by itself, and not before its time.
// The bound of how late it is (kernelLate) has no limit here: the test may run on a busy
// machine. With another address set meanwhile it is later, which is what the bound is for.
func TestKernelLosesIt(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"10.0.0.9/24@l0", "fd00::9/64@l0"} {
		for _, disturbed := range []bool{false, true} {
			t.Run(text, func(t *testing.T) {
				t.Parallel()
				k, a := inNamespace(t, "10.0.0.1/24", "fd00::1/64"), mustParse(t, text)
				for !losesIt(t, k, a, disturbed) {
					t.Log("once more: the kernel was busy")
				}
			})
		}
	}
}

// losesIt renews an address for a while, and judges when the kernel deletes it. It returns
// false if that is not to be judged: Linux may delete an address early that was renewed
// while its check of lifetimes waited for the lock of all links, from when it reckons
// (check_lifetime). It waited if the renewal did, or if that came after the address's time.
func losesIt(t *testing.T, k *kernel, a Address, disturbed bool) (judged bool) {
	t.Helper()
	index := indexOf(t, "l0")
	if err := k.set(a, index, false, always); err != nil {
		t.Fatal(err)
	}
	judged = true
	renewed := time.Now()
	for range 3 {
		time.Sleep(renewEvery)
		last := renewed
		renewed = time.Now()
		if err := k.set(a, index, true, always); err != nil {
			t.Fatal(err)
		}
		judged = time.Since(renewed) < 5*time.Millisecond && time.Since(last) < Lifetime/2
	}
	if disturbed {
		time.Sleep(Lifetime - 60*time.Millisecond)
		other := []netip.Prefix{netip.MustParsePrefix("10.1.0.1/24"), netip.MustParsePrefix("fd01::1/64")}
		if err := errors.Join(netlab.AddAddress("l0", other[0]), netlab.AddAddress("l0", other[1])); err != nil {
			t.Fatal(err)
		}
	}
	took := gone(t, k, a, renewed)
	t.Logf("disturbed %v: gone %v after the last renewal", disturbed, took)
	if took >= Lifetime-50*time.Millisecond {
		return true
	}
	if judged {
		t.Errorf("gone %v after the last renewal, before %v", took, Lifetime)
	}
	return judged
}

// A server's own connections never come from the service address, also if the link's own
// address is of another subnet.
func TestNeverASource(t *testing.T) {
	for _, c := range []struct{ own, service, far string }{
		{"10.0.0.1/24", "10.0.0.9/24@l0", "10.0.0.77"},
		{"10.0.0.200/24", "10.0.0.9/32@l0", "10.0.0.77"},
		{"192.0.2.1/24", "10.0.0.9/24@l0", "192.0.2.77"},
		{"fd00::1/64", "fd00::9/64@l0", "fd00::77"},
	} {
		t.Run(c.service, func(t *testing.T) {
			k, a := inNamespace(t, c.own), mustParse(t, c.service)
			if err := k.set(a, indexOf(t, "l0"), false, always); err != nil {
				t.Fatal(err)
			}
			conn, err := net.Dial("udp", net.JoinHostPort(c.far, "9"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if got := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr(); got == a.IP() {
				t.Errorf("a connection to %s comes from %s", c.far, got)
			}
			if err := k.drop(a, indexOf(t, "l0")); err != nil {
				t.Error(err)
			}
			if err := k.drop(a, indexOf(t, "l0")); err != nil {
				t.Errorf("to drop it twice: %v", err)
			}
		})
	}
}

// neverLeads is a Leader of a server that is never elected.
type neverLeads struct{ Leader }

func newKeeper(k *kernel, a Address) *keeper {
	s := New(Config{Addresses: []Address{a}, Leader: neverLeads{}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	s.kernel = k
	return s.keepers[0]
}

// What an earlier process of this program left is deleted; what another program has set
// is not touched, with or without a lifetime.
func TestLeftovers(t *testing.T) {
	k, a := inNamespace(t, "10.0.0.1/24"), mustParse(t, "10.0.0.9/24@l0")
	keeper := newKeeper(k, a)
	if err := k.set(a, indexOf(t, "l0"), false, always); err != nil {
		t.Fatal(err)
	}
	all, err := k.find(a.IP())
	if err != nil || len(all) != 1 {
		t.Fatalf("found %v, %v", all, err)
	}
	if !all[0].ours() {
		t.Skip("this kernel keeps no marks (IFA_PROTO, Linux 5.18)")
	}
	if err := keeper.clearLeftovers(); err != nil {
		t.Fatal(err)
	}
	if all, err := k.find(a.IP()); err != nil || len(all) != 0 {
		t.Fatalf("left: %v, %v", all, err)
	}
	if err := netlab.AddAddress("l0", netip.MustParsePrefix("10.0.0.9/28")); err != nil {
		t.Fatal(err)
	}
	if err := keeper.clearLeftovers(); !errors.Is(err, errForeign) {
		t.Errorf("an address of another program: %v", err)
	}
	if all, err := k.find(a.IP()); err != nil || len(all) != 1 {
		t.Errorf("the address of another program: %v, %v", all, err)
	}
}

// The same address by another program is not made ours between the look and the message.
func TestSetTakesNothingOver(t *testing.T) {
	k, a := inNamespace(t, "10.0.0.1/24"), mustParse(t, "10.0.0.9/24@l0")
	if err := netlab.AddAddress("l0", netip.MustParsePrefix("10.0.0.9/32")); err != nil {
		t.Fatal(err)
	}
	if err := k.set(a, indexOf(t, "l0"), false, always); !errors.Is(err, unix.EEXIST) {
		t.Errorf("set over another program's address: %v", err)
	}
	if all, err := k.find(a.IP()); err != nil || len(all) != 1 || all[0].ours() || all[0].lifetime != ^uint32(0) {
		t.Errorf("the address of another program is now %+v, %v", all, err)
	}
}

// A message that may not be sent is not.
func TestSetAsksLast(t *testing.T) {
	k, a := inNamespace(t, "10.0.0.1/24"), mustParse(t, "10.0.0.9/24@l0")
	if err := k.set(a, indexOf(t, "l0"), false, func() bool { return false }); !errors.Is(err, errLate) {
		t.Errorf("got %v", err)
	}
	if all, err := k.find(a.IP()); err != nil || len(all) != 0 {
		t.Errorf("found %v, %v", all, err)
	}
}

// A link that is absent or down is named with what to do.
func TestLinks(t *testing.T) {
	inNamespace(t)
	if _, err := lookLink("none"); err == nil || !strings.Contains(err.Error(), "create it") {
		t.Errorf("absent: %v", err)
	}
	if err := netlab.SetUp("l0", false); err != nil {
		t.Fatal(err)
	}
	if _, err := lookLink("l0"); err == nil || !strings.Contains(err.Error(), "set it up") {
		t.Errorf("down: %v", err)
	}
	if _, err := lookLink("lo"); err == nil || !strings.Contains(err.Error(), "not Ethernet") {
		t.Errorf("loopback: %v", err)
	}
}

// A listener at a service address accepts as soon as the kernel has the address; its
// connections end with it, and no others.
func TestConnectionsEndWithIt(t *testing.T) {
	k, a := inNamespace(t, "10.0.0.1/24"), mustParse(t, "10.0.0.9/24@l0")
	l, err := Listen([]Address{a}, "10.0.0.9:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	other, err := Listen(nil, "10.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := Listen(nil, "10.0.0.8:0"); err == nil {
		t.Error("an address that is no service address was listened on")
	}
	if err := k.set(a, indexOf(t, "l0"), false, always); err != nil {
		t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, l := range []net.Listener{l, other} {
		if conns[i], err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
	}
	keeper := newKeeper(k, a)
	keeper.link.index = indexOf(t, "l0")
	keeper.drop("the test says so")
	var b [1]byte
	_ = conns[0].SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := conns[0].Read(b[:]); !errors.Is(err, io.EOF) {
		t.Errorf("the client reads %v, want the end", err)
	}
	_ = conns[1].SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := conns[1].Read(b[:]); errors.Is(err, io.EOF) {
		t.Error("a connection at another address was ended")
	}
}
