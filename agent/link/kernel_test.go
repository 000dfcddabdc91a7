package link

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rutter/projections/desired"

	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
)

// has8021Q tries to make a VLAN link, which is the only sure way to know.
func (w *world) has8021Q() bool {
	h := w.open("cn1")
	if _, err := h.Dump(context.Background(), nil); err != nil {
		w.t.Fatal(err)
	}
	a, _ := w.two(7, false)
	m := NewManager(ManagerConfig{Kernel: h})
	a.Fabrics, a.Neighs, a.FDB = nil, nil, nil
	result, err := m.Pass(context.Background(), a, true)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range result.Failures {
		if errors.Is(f.Err, plan.ErrNo8021Q) {
			return false
		}
	}
	w.pass(m, desired.Links{})
	return true
}

func TestKernelTwoNodes(t *testing.T) {
	for _, vlan := range []uint16{0, 7} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("vlan %d, IPv6 underlay %v", vlan, v6), func(t *testing.T) {
				w := newWorld(t)
				if vlan != 0 && !w.has8021Q() {
					t.Skip("this kernel has no 802.1Q: run the compiled test in a kernel that has it")
				}
				testTwoNodes(t, w, vlan, v6)
			})
		}
	}
}

func testTwoNodes(t *testing.T, w *world, vlan uint16, v6 bool) {
	w.namespace("zA")
	w.namespace("zB")
	a, b := w.two(vlan, v6)
	m1 := NewManager(ManagerConfig{Kernel: w.open("cn1")})
	m2 := NewManager(ManagerConfig{Kernel: w.open("cn2")})
	w.pass(m1, a)
	w.pass(m2, b)
	for _, m := range []struct {
		m    *Manager
		want desired.Links
	}{{m1, a}, {m2, b}} {
		if result := w.pass(m.m, m.want); len(result.Steps) != 0 {
			t.Fatalf("second pass: got %v, want no step", texts(result.Steps))
		}
	}
	full := int(a.Fabrics[0].MTU) - 28 // IPv4 and ICMP headers
	for _, p := range []struct {
		to   netip.Addr
		size int
	}{{addr("192.168.5.2"), 8}, {addr("fd05::2"), 8}, {addr("192.168.5.2"), full}} {
		if err := w.ping("zA", p.to, p.size); err != nil {
			t.Errorf("first packet of %d bytes: %v", p.size, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(w.etc, "zA", "resolv.conf"))
	if err != nil || string(text) != plan.ResolversHead+"nameserver 192.168.5.253\n" {
		t.Errorf("resolv.conf: got %q, %v", text, err)
	}
	w.pass(m1, desired.Links{})
	have, err := w.open("cn1").Dump(context.Background(), []string{"zA"})
	if err != nil || len(have.Links) != 0 || len(have.Resolvers) != 0 {
		t.Errorf("after all is unwanted: got %v, %v, %v, want nothing", have.Links, have.Resolvers, err)
	}
}

func TestKernelHeals(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	a, _ := w.two(0, false)
	h, vandal := w.open("cn1"), w.open("cn1")
	now := time.Now()
	m := NewManager(ManagerConfig{Kernel: h, Now: func() time.Time { return now }})
	w.pass(m, a)
	n := plan.FabricName(0)
	damages := []struct {
		name  string
		steps []plan.Step
	}{
		{"fabric link", []plan.Step{{Op: plan.OpDelLink, Namespace: "zA", Link: n}}},
		{"vxlan", []plan.Step{{Op: plan.OpDelLink, Link: "sdcvxl5"}}},
		{"neighbours", []plan.Step{{Op: plan.OpDelNeigh, Namespace: "zA", Link: n, Addr: addr("192.168.5.2")}}},
		{"forwarding entry", []plan.Step{{Op: plan.OpDelFDB, Link: "sdcvxl5", MAC: mac(2)}}},
		{"another forwarding entry", []plan.Step{{Op: plan.OpSetFDB, Link: "sdcvxl5", MAC: mac(77), Addr: addr("10.99.0.7")}}},
		{"entry moved", []plan.Step{{Op: plan.OpSetFDB, Link: "sdcvxl5", MAC: mac(2), Addr: addr("10.99.0.7"), Port: 4000}}},
		{"address", []plan.Step{{Op: plan.OpDelAddress, Namespace: "zA", Link: n, Prefix: prefix("192.168.5.1/24")}}},
		{"another address", []plan.Step{{Op: plan.OpAddAddress, Namespace: "zA", Link: n, Prefix: prefix("192.168.5.77/24")}}},
		{"routes", []plan.Step{
			{Op: plan.OpDelRoute, Namespace: "zA", Link: n, Prefix: prefix("0.0.0.0/0")},
			{Op: plan.OpDelRoute, Namespace: "zA", Link: n, Prefix: prefix("fd77::/48")},
		}},
		{"mtu and mac", []plan.Step{{
			Op: plan.OpSetLink, Namespace: "zA", Link: n, Change: plan.ChangeMTU | plan.ChangeMAC, Spec: &plan.Link{MTU: 1300, MAC: mac(66)},
		}}},
		{"mtu of the vxlan", []plan.Step{{Op: plan.OpSetLink, Link: "sdcvxl5", Change: plan.ChangeMTU, Spec: &plan.Link{MTU: 1300}}}},
	}
	for _, damage := range damages {
		t.Run(damage.name, func(t *testing.T) {
			if _, err := vandal.Dump(context.Background(), []string{"zA"}); err != nil {
				t.Fatal(err)
			}
			if errs := vandal.Do(context.Background(), damage.steps); errs != nil {
				t.Fatal(errors.Join(errs...))
			}
			if result := w.pass(m, a); len(result.Drift) == 0 {
				t.Error("drift: got none, want some")
			}
			if result := w.pass(m, a); len(result.Steps) != 0 {
				t.Errorf("pass after: got %v, want no step", texts(result.Steps))
			}
		})
	}
	t.Run("links down", func(t *testing.T) {
		for place, index := range h.index {
			ns := place.Namespace
			if ns == "" {
				ns = "cn1"
			}
			w.raw(ns, unix.RTM_NEWLINK, 0, func(e *wire.Encoder) { e.LinkHeader(index, 0, unix.IFF_UP) })
		}
		if result := w.pass(m, a); len(result.Drift) == 0 {
			t.Error("drift: got none, want some")
		}
	})
	t.Run("namespace", func(t *testing.T) {
		w.drop("zA")
		result, err := m.Pass(context.Background(), a, true)
		if err != nil || len(result.Failures) == 0 || !errors.Is(result.Failures[0].Err, plan.ErrNoNamespace) || result.RetryAt.IsZero() {
			t.Fatalf("without namespace: got %v, %v, want ErrNoNamespace and a time to retry", result.Failures, err)
		}
		w.namespace("zA")
		// The kernel takes the old namespace's link away when it finds time, and
		// until then refuses another one with the same MAC.
		for deadline := time.Now().Add(patience); ; {
			now = now.Add(maxDelay)
			result, err = m.Pass(context.Background(), a, true)
			if err == nil && result.Matched {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("new namespace: got %v, %v, want a match", result.Failures, err)
			}
		}
	})
}

func TestKernelLeavesForeignLinks(t *testing.T) {
	w := newWorld(t)
	a, _ := w.two(0, false)
	a.Fabrics[0].Namespace = ""
	a.Fabrics[0].Gateway, a.Fabrics[0].Routes = netip.Addr{}, nil
	const index = 200
	w.raw("cn1", unix.RTM_NEWLINK, flagsCreate, func(e *wire.Encoder) {
		e.LinkHeader(index, 0, 0)
		e.AttrText(unix.IFLA_IFNAME, "sdcvxl5")
		e.Attr32(unix.IFLA_MTU, 1234)
		e.Nest(unix.IFLA_LINKINFO, func() { e.AttrText(unix.IFLA_INFO_KIND, "bridge") })
	})
	h := w.open("cn1")
	m := NewManager(ManagerConfig{Kernel: h})
	for range 2 {
		result, err := m.Pass(context.Background(), a, true)
		if err != nil || len(result.Conflicts) == 0 || result.Matched {
			t.Fatalf("pass: got conflicts %v, matched %v, %v, want a conflict", result.Conflicts, result.Matched, err)
		}
	}
	have, err := h.Dump(context.Background(), nil)
	if err != nil || len(have.Links) != 1 || have.Links[0].Kind != "bridge" || have.Links[0].MTU != 1234 || have.Links[0].Up {
		t.Errorf("foreign link: got %v, %v", have.Links, err)
	}
}

func TestKernelRefusesTagsWithout8021Q(t *testing.T) {
	w := newWorld(t)
	if w.has8021Q() {
		t.Skip("this kernel has 802.1Q")
	}
	w.namespace("zA")
	a, _ := w.two(7, false)
	h := w.open("cn1")
	result, err := NewManager(ManagerConfig{Kernel: h}).Pass(context.Background(), a, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Failures) == 0 || !errors.Is(result.Failures[0].Err, plan.ErrNo8021Q) || result.Matched {
		t.Errorf("failures: got %v, want ErrNo8021Q", result.Failures)
	}
	have, _ := h.Dump(context.Background(), []string{"zA"})
	if len(have.Links) != 1 || have.Links[0].Name != "sdcvxl5" {
		t.Errorf("links: got %v, want the VXLAN device only", have.Links)
	}
}

func TestKernelNICMovesBetweenNamespaces(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	w.namespace("zB")
	a, _ := w.two(0, false)
	m := NewManager(ManagerConfig{Kernel: w.open("cn1")})
	for _, namespace := range []string{"", "zB", "zA", ""} {
		a.Fabrics[0].Namespace = namespace
		w.pass(m, a)
	}
}

func TestWatch(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	a, _ := w.two(0, false)
	h, vandal := w.open("cn1"), w.open("cn1")
	m := NewManager(ManagerConfig{Kernel: h})
	w.pass(m, a)
	woken := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- h.Watch(ctx, func() {
			select {
			case woken <- struct{}{}:
			default:
			}
		}, func() {})
	}()
	<-woken // it receives notifications from now on
	h.Observed()
	await := func(what string, do func()) {
		t.Helper()
		deadline := time.After(patience)
		for {
			do() // again and again: the watch may not have joined its groups yet
			select {
			case <-woken:
				return
			case <-time.After(50 * time.Millisecond):
			case <-deadline:
				t.Fatalf("%s: not woken", what)
			}
		}
	}
	damage := func(steps ...plan.Step) func() {
		return func() {
			if _, err := vandal.Dump(ctx, []string{"zA"}); err != nil {
				t.Fatal(err)
			}
			if errs := vandal.Do(ctx, steps); errs != nil {
				t.Fatal(errors.Join(errs...))
			}
		}
	}
	await("forwarding entry", damage(plan.Step{Op: plan.OpSetFDB, Link: "sdcvxl5", MAC: mac(9), Addr: addr("10.99.0.9")},
		plan.Step{Op: plan.OpDelFDB, Link: "sdcvxl5", MAC: mac(9)}))
	await("neighbour in a VM", damage(plan.Step{Op: plan.OpSetNeigh, Namespace: "zA", Link: plan.FabricName(0), Addr: addr("192.168.5.9"), MAC: mac(9)},
		plan.Step{Op: plan.OpDelNeigh, Namespace: "zA", Link: plan.FabricName(0), Addr: addr("192.168.5.9")}))
	await("link", damage(plan.Step{Op: plan.OpDelLink, Link: "sdcvxl5"}))
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("watch: got %v, want context.Canceled", err)
	}
}
