package liveness

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rutter/log"
	"rutter/log/feed"
)

func macOf(n byte) log.MAC { return log.MAC{2, 0, 0, 0, 0, n} }

// reachBut reports to a server that a CN has reached the head, except for a list.
func (c *cluster) reachBut(server int, s Session, programmed log.Seq, number uint32, list ...feed.Wait) bool {
	head := c.store.Head().Seq
	s.Log, s.Sent, s.Applied, s.Programmed, s.Reached = c.store.cluster, head, head, programmed, head
	s.List, s.Waits = number, list
	return c.nodes[server].table.Put(s)
}

// TestBarrierOfObjects: a barrier waits for the objects that its change concerns and for
// no others, names them, and lists those of VMs that are not to run without waiting. What
// an agent of an earlier version sends has no list: then the seq alone counts.
func TestBarrierOfObjects(t *testing.T) {
	vm, other := testUUID(0x501), testUUID(0x502)
	link := feed.Wait{Kind: feed.WaitNIC, VNet: 7, NIC: macOf(1), VM: vm, RetryAt: 1_700_000_000, Why: "fabric link of 02:00:00:00:00:01: no namespace"}
	idle := link
	idle.Idle, idle.Why, idle.RetryAt = true, "", 0
	entry := feed.Wait{Kind: feed.WaitEntry, VNet: 7, NIC: macOf(1), Peer: macOf(2), VM: vm, Why: "neighbour"}
	device := feed.Wait{Kind: feed.WaitVNet, VNet: 7, Why: "vxlan sdcvxl7: file exists"}
	gone := feed.Wait{Kind: feed.WaitNIC, NIC: macOf(1), Why: "fabric link fabric3: cannot be deleted"}
	node := feed.Wait{Kind: feed.WaitNode, Why: "link x"}
	newer := feed.Wait{Kind: 200}
	on := func(vnet uint32) []log.Scope { return []log.Scope{log.VNetScope(vnet)} }
	for name, c := range map[string]struct {
		list    []feed.Wait
		scopes  []log.Scope
		concern *Concern
		waits   bool
		absent  int
	}{
		"its NIC":                           {[]feed.Wait{link}, nil, &Concern{NICs: []log.MAC{macOf(1)}}, true, 0},
		"another NIC":                       {[]feed.Wait{link}, on(7), &Concern{NICs: []log.MAC{macOf(2)}, VMs: []log.UUID{other}}, false, 0},
		"its VM":                            {[]feed.Wait{link}, nil, &Concern{VMs: []log.UUID{vm}}, true, 0},
		"nothing in a kernel":               {[]feed.Wait{link, entry, device}, nil, &Concern{}, false, 0},
		"the network":                       {[]feed.Wait{link}, on(7), &Concern{VNets: []uint32{7}}, true, 0},
		"another network":                   {[]feed.Wait{link, device, entry}, on(8), &Concern{VNets: []uint32{8}}, false, 0},
		"all":                               {[]feed.Wait{link}, nil, nil, true, 0},
		"all, where a VM is not to run":     {[]feed.Wait{idle}, nil, nil, false, 1},
		"its VM, which is not to run":       {[]feed.Wait{idle}, nil, &Concern{VMs: []log.UUID{vm}}, false, 1},
		"another VM than one not to run":    {[]feed.Wait{idle}, nil, &Concern{VMs: []log.UUID{other}, NICs: []log.MAC{macOf(9)}}, false, 0},
		"one not to run and one that lacks": {[]feed.Wait{link, idle}, nil, &Concern{VMs: []log.UUID{vm}}, true, 1},
		"the NIC that an entry is about":    {[]feed.Wait{entry}, nil, &Concern{NICs: []log.MAC{macOf(2)}}, true, 0},
		"the NIC that an entry is on":       {[]feed.Wait{entry}, nil, &Concern{NICs: []log.MAC{macOf(1)}}, true, 0},
		"a third NIC beside an entry":       {[]feed.Wait{entry}, on(7), &Concern{NICs: []log.MAC{macOf(3)}}, false, 0},
		"a NIC on the vnet of a device":     {[]feed.Wait{device}, on(7), &Concern{NICs: []log.MAC{macOf(3)}}, true, 0},
		"a NIC beside the vnet":             {[]feed.Wait{device}, on(8), &Concern{NICs: []log.MAC{macOf(3)}}, false, 0},
		"what is left of it":                {[]feed.Wait{gone}, nil, &Concern{NICs: []log.MAC{macOf(1)}}, true, 0},
		"what is left of another":           {[]feed.Wait{gone}, nil, &Concern{NICs: []log.MAC{macOf(2)}, VMs: []log.UUID{vm}}, false, 0},
		"what is left, and only a VM":       {[]feed.Wait{gone}, nil, &Concern{VMs: []log.UUID{vm}}, true, 0},
		"what is left, and a network":       {[]feed.Wait{gone}, on(7), &Concern{VNets: []uint32{7}}, true, 0},
		"the node":                          {[]feed.Wait{node}, nil, &Concern{NICs: []log.MAC{macOf(2)}}, true, 0},
		"of a kind that is not known here":  {[]feed.Wait{newer}, nil, &Concern{NICs: []log.MAC{macOf(2)}}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCluster(t, time.Now)
				cn := cl.cns(1)[0]
				defer cl.run()()
				cl.elect(0)
				seq := cl.store.Head().Seq
				wait(5 * time.Second)
				scopes := append([]log.Scope{log.CNScope(cn)}, c.scopes...)
				ask := func(asked int) Verdict {
					v, err := cl.nodes[asked].fabric.Wait(t.Context(), Query{Seq: seq, Scopes: scopes, Timeout: 500 * time.Millisecond, Concern: c.concern})
					if err != nil {
						t.Fatal(err)
					}
					return v
				}
				cl.reachBut(1, connect(cn, 1, 1), 0, 3, c.list...)
				for asked := range 3 {
					v := ask(asked)
					if v.Done == c.waits || len(v.Absent) != c.absent || v.AbsentTotal != c.absent {
						t.Fatalf("by server %d: %+v, want waiting %v and %d absent", asked, v, c.waits, c.absent)
					}
					if !c.waits {
						continue
					}
					l := v.Missing[0]
					if len(l.Objects) != l.Waiting || l.Waiting == 0 || !strings.Contains(l.Reason, c.list[0].String()) || l.Objects[0].Object != c.list[0].String() {
						t.Errorf("by server %d: %+v, want the object and why", asked, l)
					}
				}
				// The same without a list, as from an earlier version.
				old := connect(cn, 1, 2)
				cl.reach(1, old, 0)
				if v := ask(2); v.Done {
					t.Errorf("without a list: %+v, want to wait for the seq", v)
				}
				if cl.reach(1, old, seq); !ask(2).Done {
					t.Error("without a list, at the seq: want done")
				}
			})
		})
	}
}

// TestListNamesAFew: an answer is bounded, whatever a list has.
func TestListNamesAFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cn := c.cns(1)[0]
		defer c.run()()
		c.elect(0)
		wait(5 * time.Second)
		list := make([]feed.Wait, feed.MaxWaits)
		for i := range list {
			list[i] = feed.Wait{Kind: feed.WaitNIC, NIC: log.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)}, VNet: 7, Idle: i%2 == 1}
		}
		c.reachBut(2, connect(cn, 1, 1), 0, 1, list...)
		v := c.wait(1, c.store.Head().Seq, time.Second, log.CNScope(cn))
		if l := v.Missing[0]; v.Done || len(l.Objects) != maxObjects || l.Waiting != len(list)/2 || len(v.Absent) != MaxAbsent || v.AbsentTotal != len(list)/2 {
			t.Errorf("%d objects of %d, %d absent of %d", len(l.Objects), l.Waiting, len(v.Absent), v.AbsentTotal)
		}
		known, err := c.nodes[1].fabric.List(t.Context())
		if err != nil || len(known) != 1 || len(known[0].Waits) != MaxShown || known[0].Waiting != len(list)/2 || known[0].Idle != len(list)/2 {
			t.Errorf("list of sessions: %d objects of %d and %d, %v", len(known[0].Waits), known[0].Waiting, known[0].Idle, err)
		}
	})
}

// TestListsTravelOnce: a server tells the leader a list when it changed, and so many lists
// in one answer that it fits a frame. Nothing is lost by it.
func TestListsTravelOnce(t *testing.T) {
	table := NewTable(1, time.Now)
	big := make([]feed.Wait, feed.MaxWaits)
	const many = 20
	put := func(n int, number uint32) {
		s := connect(testUUID(n), 1, 1)
		s.Reached, s.List, s.Waits = 9, number, big
		table.Put(s)
	}
	for n := range many {
		put(n, 1)
	}
	var p poll
	got := map[log.UUID]int{}
	answers := 0
	take := func() *pollAnswer {
		b := table.since(p).encode()
		if len(b) > log.MaxChangeBytes {
			t.Fatalf("an answer of %d bytes does not fit a frame", len(b))
		}
		a, err := decodeAnswer(b)
		if err != nil {
			t.Fatal(err)
		}
		p.run, p.since = a.run, a.version
		return a
	}
	for more := true; more; answers++ {
		a := take()
		for _, r := range a.rows {
			if got[r.CN]++; !r.listed || len(r.Waits) != len(big) || r.Reached != 9 {
				t.Fatalf("row of %s: listed %v, %d objects", r.CN, r.listed, len(r.Waits))
			}
		}
		more = a.more
	}
	if len(got) != many || answers < 2 {
		t.Errorf("%d sessions in %d answers, want %d in several", len(got), answers, many)
	}
	put(3, 1) // it moves on with the same list
	if a := take(); len(a.rows) != 1 || a.rows[0].listed || a.rows[0].Waits != nil || a.rows[0].List != 1 {
		t.Errorf("the same list: %d rows, listed %v", len(a.rows), a.rows[0].listed)
	}
	put(3, 2)
	if a := take(); len(a.rows) != 1 || !a.rows[0].listed {
		t.Errorf("another list: %d rows, listed %v", len(a.rows), a.rows[0].listed)
	}
}

// goldenAnswer is an answer of a server to a poll, with and without lists.
func goldenAnswer(lists bool) *pollAnswer {
	s := connect(testUUID(1), 2, 3)
	s.Log, s.Sent, s.Applied, s.Programmed, s.Failing, s.Checked, s.Held = testUUID(9), 44, 43, 41, 2, 40, true
	other := s
	other.CN = testUUID(2)
	a := &pollAnswer{run: 5, version: 6, rows: []Reported{{Session: s, Silent: 7 * time.Millisecond}, {Session: other}}}
	if lists {
		r := &a.rows[0]
		r.Reached, r.List, r.listed = 42, 3, true
		r.Waits = []feed.Wait{{Kind: feed.WaitNIC, Idle: true, VNet: 7, NIC: macOf(1), VM: testUUID(4)}, {Kind: feed.WaitVNet, VNet: 8, Why: "vxlan sdcvxl8: file exists"}}
	}
	return a
}

// TestGoldenAnswers: this program reads the answers of servers of both versions, and
// writes the second, of which the first reads all that it knows: it takes the size of a
// row from the header, and the first fields of each row.
func TestGoldenAnswers(t *testing.T) {
	for _, name := range []string{"answer.v1", "answer.v2"} {
		text, err := os.ReadFile("testdata/golden/" + name + ".hex")
		if err != nil {
			t.Fatal(err)
		}
		want, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		a := goldenAnswer(name == "answer.v2")
		if got, err := decodeAnswer(want); err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%s: read %+v, %v; want %+v", name, got, err, a)
		}
		b := a.encode()
		if name == "answer.v2" && string(b) != string(want) {
			t.Errorf("%s: wrote %x", name, b)
		}
		first, err := decodeAnswer(want)
		if err != nil {
			t.Fatal(err)
		}
		for i := range first.rows {
			row := b[answerHeader+i*rowBytes:][:rowLeast]
			var r Reported
			if r.read(row); r.Session.Programmed != 41 || r.CN != a.rows[i].CN || r.Reached != 0 || r.List != 0 {
				t.Errorf("%s: the first version reads row %d as %+v", name, i, r)
			}
		}
	}
}

// TestQueryOfEarlierVersions: a leader takes a barrier of a server of an earlier version
// for one that concerns everything.
func TestQueryOfEarlierVersions(t *testing.T) {
	var q Query
	if err := json.Unmarshal([]byte(`{"seq":5,"scopes":["all"],"timeout_ns":1000}`), &q); err != nil || q.Concern != nil || !concernOf(&q).has(&feed.Wait{Kind: feed.WaitNIC}) {
		t.Errorf("%+v, %v, want everything", q, err)
	}
	if big := (&Concern{VNets: make([]uint32, MaxConcerned+1)}).Bounded(); big != nil {
		t.Errorf("%d objects: want everything", len(big.VNets))
	}
	if some := (&Concern{VNets: make([]uint32, MaxConcerned)}).Bounded(); some == nil {
		t.Error("as many as the bound: want these")
	}
}
