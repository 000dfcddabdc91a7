package link

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"rutter/agent/link/internal/linktest"
	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// pendingOf returns what is pending of an object whose text begins so.
func pendingOf(result Result, object string) (list []Pending) {
	for _, p := range result.Pending {
		if strings.HasPrefix(p.Object.String(), object) {
			list = append(list, p)
		}
	}
	return list
}

// TestWhatAPendingObjectConcerns: each object that the kernel refuses concerns no more than
// its NIC, its vnet, or its node; the rest of the kernel is settled.
func TestWhatAPendingObjectConcerns(t *testing.T) {
	want := linktest.Sample()
	vnet := func(mac log.MAC) uint32 {
		i, _ := findFabric(want.Fabrics, mac)
		return want.Fabrics[i].VNet
	}
	first := want.Fabrics[0]
	for name, c := range map[string]struct {
		fail    func(s plan.Step) bool
		object  string
		concern Concern
		check   func(p Pending) bool
	}{
		"device": {
			func(s plan.Step) bool { return s.Op == plan.OpAddLink && s.Link == "sdcvxl6" }, "vxlan sdcvxl6", ConcernVNet,
			func(p Pending) bool { return p.VNet == 6 },
		},
		"link on it": {
			func(s plan.Step) bool { return s.Op == plan.OpAddLink && s.Link == "sdcvxl6" }, "fabric link of", ConcernNIC,
			func(p Pending) bool { return p.VNet == 6 && vnet(p.NIC) == 6 },
		},
		"link": {
			func(s plan.Step) bool { return s.Op == plan.OpAddLink && s.Object.MAC == first.MAC }, "fabric link of", ConcernNIC,
			func(p Pending) bool { return p.NIC == first.MAC && p.VNet == first.VNet && p.VM == first.VM },
		},
		"address of a link": {
			func(s plan.Step) bool { return s.Op == plan.OpAddAddress && s.Object.MAC == first.MAC }, "fabric link of", ConcernNIC,
			func(p Pending) bool { return p.NIC == first.MAC },
		},
		"neighbour": {
			func(s plan.Step) bool { return s.Op == plan.OpSetNeigh && s.Object.MAC == want.Neighs[0].Link && s.Addr == want.Neighs[0].IP }, "neighbour", ConcernEntry,
			func(p Pending) bool { return p.NIC == want.Neighs[0].Link && p.Peer == want.Neighs[0].MAC && p.VNet == vnet(p.NIC) },
		},
		"forwarding entry": {
			func(s plan.Step) bool { return s.Op == plan.OpSetFDB && s.MAC == want.FDB[0].MAC }, "forwarding entry", ConcernVNet,
			func(p Pending) bool { return p.VNet == want.FDB[0].VNet },
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &plan.Fake{Fail: func(s plan.Step) error {
				if c.fail(s) {
					return syscall.ENOMEM
				}
				return nil
			}}
			for i := range want.Fabrics {
				f.AddNamespace(want.Fabrics[i].Namespace)
			}
			m, _ := fakeManager(f)
			result := mustPass(t, m, want)
			list := pendingOf(result, c.object)
			if result.Matched || !result.Settled || len(list) == 0 {
				t.Fatalf("matched %v, settled %v, pending %v", result.Matched, result.Settled, result.Pending)
			}
			for _, p := range list {
				if p.Concern != c.concern || !c.check(p) || p.Idle || p.Err == nil {
					t.Errorf("%+v", p)
				}
			}
			again := m.Apply(context.Background(), desired.LinksDelta{})
			if !again.Settled || again.Matched || !slices.Equal(again.Pending, result.Pending) {
				t.Errorf("between passes: settled %v, matched %v, %d pending", again.Settled, again.Matched, len(again.Pending))
			}
			f.Fail = nil
			m.backoff = map[plan.Object]waiting{}
			if result = mustPass(t, m, want); !result.Matched || !result.Settled || len(result.Pending) != 0 {
				t.Errorf("in the end: matched %v, settled %v, pending %v", result.Matched, result.Settled, result.Pending)
			}
		})
	}
}

// TestLeftOversArePending: a link of a NIC that is gone, and cannot be deleted, concerns that
// NIC; a device that cannot be deleted, its vnet.
func TestLeftOversArePending(t *testing.T) {
	want := linktest.Sample()
	f := &plan.Fake{}
	for i := range want.Fabrics {
		f.AddNamespace(want.Fabrics[i].Namespace)
	}
	m, _ := fakeManager(f)
	mustPass(t, m, want)
	f.Fail = func(s plan.Step) error {
		if s.Op == plan.OpDelLink {
			return syscall.EBUSY
		}
		return nil
	}
	gone, rest := want.Fabrics[0], want
	rest.Fabrics = want.Fabrics[1:]
	rest.Neighs = slices.DeleteFunc(slices.Clone(want.Neighs), func(n desired.Neigh) bool { return n.Link == gone.MAC })
	result := mustPass(t, m, rest)
	if len(result.Pending) != 1 || !result.Settled || result.Pending[0].Concern != ConcernNIC || result.Pending[0].NIC != gone.MAC {
		t.Errorf("link: settled %v, pending %+v", result.Settled, result.Pending)
	}
	m.backoff = map[plan.Object]waiting{}
	result = mustPass(t, m, desired.Links{})
	for _, p := range result.Pending {
		if p.Concern != ConcernVNet || p.VNet == 0 {
			t.Errorf("device: %+v", p)
		}
	}
	if len(result.Pending) != len(want.VXLANs) || !result.Settled {
		t.Errorf("devices: settled %v, %d pending, want %d", result.Settled, len(result.Pending), len(want.VXLANs))
	}
}

// TestUnfinishedPassIsNotSettled: what a pass did not come to, because another program
// changes the kernel meanwhile, is nothing that may be left out.
func TestUnfinishedPassIsNotSettled(t *testing.T) {
	want := linktest.Sample()
	f := &plan.Fake{}
	for i := range want.Fabrics {
		f.AddNamespace(want.Fabrics[i].Namespace)
	}
	at := plan.LinkKey{Namespace: want.Fabrics[0].Namespace, Name: "fabric0"}
	m, _ := fakeManager(f)
	f.Fail = func(s plan.Step) error {
		if s.Op == plan.OpSetNeigh {
			return plan.ErrNotMade // as when the link went with its entries
		}
		return nil
	}
	if result := mustPass(t, m, want); result.Settled || result.Matched {
		t.Errorf("settled %v, matched %v with entries missing on %v: %v", result.Settled, result.Matched, at, result.Pending)
	}
	f.Fail = nil
	if result := mustPass(t, m, want); !result.Settled || !result.Matched {
		t.Errorf("in the end: settled %v, matched %v: %v", result.Settled, result.Matched, result.Pending)
	}
}

// TestIdleLinks: a link is idle if it has no namespace and its VM is not to run; not if its
// namespace cannot be read, or its VM is to run.
func TestIdleLinks(t *testing.T) {
	want := linktest.Sample()
	for i := range want.Fabrics {
		want.Fabrics[i].Idle, want.Fabrics[i].Namespace = i == 0, fmt.Sprintf("z%d", i+1)
	}
	m, _ := fakeManager(&plan.Fake{})
	result := mustPass(t, m, want)
	links := pendingOf(result, "fabric link of")
	if len(links) != len(want.Fabrics) || !result.Settled {
		t.Fatalf("settled %v, pending %v", result.Settled, result.Pending)
	}
	for _, p := range links {
		if p.Idle != (p.NIC == want.Fabrics[0].MAC) {
			t.Errorf("%s: idle %v", p.NIC, p.Idle)
		}
	}
	p := m.pend(nil, Failure{Object: links[0].Object, Err: plan.ErrBadNamespace}, &want)
	if p[0].Idle {
		t.Error("a link in a namespace that cannot be read is idle")
	}
}

// TestResolversConcernTheirVM: resolv.conf of a namespace concerns the NICs in it, and of
// one that is gone those that were there.
func TestResolversConcernTheirVM(t *testing.T) {
	want := linktest.Sample()
	m, _ := fakeManager(&plan.Fake{})
	name := want.Fabrics[0].Namespace
	f := Failure{Object: plan.Object{Kind: plan.ObjectResolvers, Name: name}, Err: syscall.EACCES}
	in := 0
	for i := range want.Fabrics {
		if want.Fabrics[i].Namespace == name {
			in++
		}
	}
	if list := m.pend(nil, f, &want); len(list) != in || list[0].Concern != ConcernNIC || list[0].NIC != want.Fabrics[0].MAC || list[0].Idle {
		t.Errorf("namespace: %+v, want %d NICs", list, in)
	}
	m.numbers.Assign(want.Fabrics[0].MAC, func(uint32) bool { return false })
	m.numbers.Put(want.Fabrics[0].MAC, name)
	if list := m.pend(nil, f, &desired.Links{}); len(list) != 1 || list[0].Concern != ConcernNIC || list[0].NIC != want.Fabrics[0].MAC {
		t.Errorf("namespace of before: %+v", list)
	}
	f.Object.Name = "other"
	if list := m.pend(nil, f, &desired.Links{}); len(list) != 1 || list[0].Concern != ConcernNode {
		t.Errorf("namespace of none: %+v", list)
	}
}
