package link

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"rutter/agent/link/internal/wire"
	"rutter/agent/link/plan"
)

// brokenByName returns a way in which the file of a namespace cannot be used.
func brokenByName(t *testing.T, name string) brokenNamespace {
	t.Helper()
	for _, b := range brokenNamespaces {
		if b.name == name {
			return b
		}
	}
	t.Fatalf("no %q", name)
	return brokenNamespace{}
}

// TestNamespaceHangsWhileProgrammed: a namespace that is read well, and whose file is then
// that of a program that does not answer, or a FIFO, fails alone when it is programmed.
// What is in other namespaces is done.
func TestNamespaceHangsWhileProgrammed(t *testing.T) {
	for _, name := range []string{"file of a program that does not answer", "FIFO"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.namespace("zA")
			w.namespace("zBad")
			a, _ := w.two(0, false)
			h := w.open("cn1")
			m := NewManager(ManagerConfig{Kernel: h})
			if result := w.pass(m, a); !result.Matched {
				t.Fatal("the node is not as wanted")
			}
			want := withVM(a, 1, "zBad")
			have, err := h.Dump(context.Background(), namespacesOf(&want, &m.numbers))
			if err != nil {
				t.Fatal(err)
			}
			if err := m.assign(want, have); err != nil {
				t.Fatal(err)
			}
			steps := plan.Plan(want, have, m.numbers, true).Steps
			h.closeSpaces()
			path := filepath.Join(w.dir, "zBad")
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
			if err := unix.Unlink(path); err != nil {
				t.Fatal(err)
			}
			if err := brokenByName(t, name).make(w, path); err != nil {
				t.Fatal(err)
			}
			other := plan.Step{Op: plan.OpSetNeigh, Object: plan.Object{Kind: plan.ObjectNeigh, MAC: a.Fabrics[0].MAC, IP: addr("192.168.5.77")}, Namespace: "zA", Link: "fabric0", Addr: addr("192.168.5.77"), MAC: mac(77)}
			began := time.Now()
			errs := h.Do(context.Background(), append(steps, other))
			if took := time.Since(began); took > patience/2 {
				t.Errorf("it took %v", took)
			}
			failed := 0
			for i, s := range steps {
				if s.Namespace == "zBad" && errs[i] == nil {
					t.Errorf("%s: want an error", s)
				} else if errs[i] != nil {
					failed++
				}
			}
			if failed == 0 || errs[len(errs)-1] != nil {
				t.Errorf("%d of %d steps failed, and that of the other VM: %v", failed, len(steps), errs[len(errs)-1])
			}
			result, err := m.Pass(context.Background(), want, true)
			if err != nil || !result.Settled || result.Unread != 1 {
				t.Fatalf("pass: %v, settled %v, %d unread: %v", err, result.Settled, result.Unread, result.Failures)
			}
			for _, p := range result.Pending {
				if p.VM != vmUUID(1) || !errors.Is(p.Err, plan.ErrBadNamespace) {
					t.Errorf("pending: %+v, want the VM of that namespace only", p)
				}
			}
			w.mend("zBad")
		})
	}
}

// guestRequest sends a request of a guest.
func guestRequest(guest *namespaceConn, typ netlink.HeaderType, flags netlink.HeaderFlags, body []byte) error {
	_, err := guest.conn.Execute(netlink.Message{Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Acknowledge | flags}, Data: body})
	return err
}

// guestLinks is how many links of its own a guest has in TestCrowdedGuestThatFloods.
const guestLinks = 2000

// TestCrowdedGuestThatFloods: a guest with thousands of links of its own, which it changes
// without end, holds up no other VM: what is done to that one is corrected meanwhile, and
// its own link is made.
func TestCrowdedGuestThatFloods(t *testing.T) {
	w := newWorld(t)
	w.namespace("zA")
	w.namespace("zBad")
	guest, err := openNamespaceConn("zBad", filepath.Join(w.dir, "zBad"))
	if err != nil {
		t.Fatal(err)
	}
	defer guest.close()
	const first = 1000 // ifindex
	for i := range guestLinks {
		var e wire.Encoder
		e.LinkHeader(int32(first+i), 0, 0)
		e.AttrText(unix.IFLA_IFNAME, fmt.Sprintf("own%d", i))
		e.Nest(unix.IFLA_LINKINFO, func() {
			e.AttrText(unix.IFLA_INFO_KIND, "vxlan")
			e.Nest(unix.IFLA_INFO_DATA, func() { e.Attr32(unix.IFLA_VXLAN_ID, uint32(i+1)) })
		})
		if err := guestRequest(guest, unix.RTM_NEWLINK, flagsCreate, e.B); err != nil {
			t.Fatal(err)
		}
	}
	a, _ := w.two(0, false)
	want := withVM(a, 1, "zBad")
	g := guard(w, want, time.Hour)
	var flooding sync.WaitGroup
	stop := make(chan struct{})
	flooding.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			var e wire.Encoder
			e.LinkHeader(int32(first+i%guestLinks), 0, 0)
			e.Attr32(unix.IFLA_MTU, uint32(1000+i%100))
			if err := guestRequest(guest, unix.RTM_NEWLINK, 0, e.B); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer flooding.Wait()
	defer close(stop)
	if result, err := g.m.Pass(context.Background(), want, true); err != nil || len(result.Failures) != 0 {
		t.Fatalf("pass: %v, %v", err, result.Failures)
	}
	vandal := w.open("cn1")
	if _, err := vandal.Dump(context.Background(), []string{"zA"}); err != nil {
		t.Fatal(err)
	}
	damage := plan.Step{Op: plan.OpDelNeigh, Namespace: "zA", Link: "fabric0", Addr: addr("192.168.5.2")}
	if errs := vandal.Do(context.Background(), []plan.Step{damage}); errs != nil {
		t.Fatal(errors.Join(errs...))
	}
	drift := 0
	g.wait(damage.String(), &drift, func() bool {
		have, err := w.open("cn1").Dump(context.Background(), []string{"zA"})
		return err == nil && len(plan.Plan(a, have, g.m.numbers, false).Steps) == 0
	})
	if drift == 0 {
		t.Error("the correction was not counted")
	}
	have, err := w.open("cn1").Dump(context.Background(), []string{"zBad"})
	if err != nil || len(have.Unread) != 0 || len(have.Links) != 2 {
		t.Errorf("the guest's own link: %v, %v unread, %d links of ours", err, have.Unread, len(have.Links))
	}
}
