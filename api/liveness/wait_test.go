package liveness

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/feed"
)

// reach reports to a server how far a CN is.
func (c *cluster) reach(server int, s Session, programmed log.Seq) bool {
	s.Log, s.Sent, s.Applied, s.Programmed = c.store.cluster, c.store.Head().Seq, c.store.Head().Seq, programmed
	return c.nodes[server].table.Put(s)
}

func (c *cluster) wait(server int, seq log.Seq, timeout time.Duration, scopes ...log.Scope) Verdict {
	c.t.Helper()
	v, err := c.nodes[server].fabric.Wait(c.t.Context(), Query{Seq: seq, Scopes: scopes, Timeout: timeout})
	if err != nil {
		c.t.Fatalf("wait: %v", err)
	}
	return v
}

func TestBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cns := c.cns(3)
		defer c.run()()
		c.elect(0)
		seq := c.store.Head().Seq
		wait(5 * time.Second)
		v := c.wait(1, seq, time.Second, log.AllScope())
		if v.Done || v.Total != 3 || v.Missing[0].Reason != "it has no session with any server" || v.Missing[0].AgeMS != -1 {
			t.Fatalf("nobody is there: %+v", v)
		}
		for i, cn := range cns {
			c.reach(i, connect(cn, 1, 1), seq-1)
		}
		began := time.Now()
		go func() {
			time.Sleep(100 * time.Millisecond)
			for i, cn := range cns {
				c.reach(i, connect(cn, 1, 1), seq)
			}
		}()
		v = c.wait(1, seq, 5*time.Second, log.AllScope())
		if took := time.Since(began); !v.Done || took > 110*time.Millisecond || v.CNs != 3 {
			t.Fatalf("after %s: %+v", took, v)
		}
		if v = c.wait(2, seq, 0, log.CNScope(cns[1])); !v.Done || v.CNs != 1 {
			t.Errorf("already there: %+v", v)
		}
		if v = c.wait(0, seq+1, time.Second, log.AllScope()); v.Done || !strings.Contains(v.Reason, "has not reached") {
			t.Errorf("a seq that is to come: %+v", v)
		}
	})
}

// SAFETY B2: a barrier is of those whom the scopes concern when it answers: one who
// came while it waited counts, one who went does not.
func TestBarrierIsOfThoseAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cns := c.cns(2)
		defer c.run()()
		c.elect(0)
		seq := c.store.Head().Seq
		wait(5 * time.Second)
		came := testUUID(0x200)
		go func() {
			time.Sleep(100 * time.Millisecond)
			c.create(&log.Server{UUID: came, Hostname: "came"})
			c.reach(1, connect(cns[0], 1, 1), seq)
			c.reach(1, connect(cns[1], 1, 1), seq)
		}()
		v := c.wait(1, seq, time.Second, log.AllScope())
		if v.Done || v.CNs != 3 || v.Total != 1 || v.Missing[0].Hostname != "came" {
			t.Errorf("one came: %+v, want to wait for it", v)
		}
		go func() {
			time.Sleep(100 * time.Millisecond)
			change := &log.Change{ID: testUUID(1 << 41), Actor: "test", Ops: []log.Op{{Action: log.Delete, Kind: log.KindServer, ID: came.String()}}}
			if result, err := c.store.Propose(t.Context(), change); err != nil || result.Refusal != nil {
				t.Errorf("delete: %v %v", err, result.Refusal)
			}
			c.reach(1, connect(cns[0], 1, 1), seq+1)
		}()
		if v := c.wait(1, seq, time.Second, log.AllScope()); !v.Done || v.CNs != 2 {
			t.Errorf("it went: %+v, want done", v)
		}
	})
}

// Each way of not being done has its name.
func TestLaggardsAreNamed(t *testing.T) {
	for want, do := range map[string]func(c *cluster, s Session){
		"its session has ended":          func(c *cluster, s Session) { c.nodes[1].table.Put(gone(s)) },
		"it has not said yet how far it": func(c *cluster, s Session) { s.Number++; c.nodes[2].table.Put(s) },
		"it follows another log": func(c *cluster, s Session) {
			s.Number++
			s.Log, s.Programmed = testUUID(9), 99
			c.nodes[2].table.Put(s)
		},
		"its server s1 does not answer": func(c *cluster, s Session) { c.setDown(1, true) },
		"its kernel refuses 4 steps":    func(c *cluster, s Session) { s.Number++; s.Failing = 4; c.reach(2, s, 0) },
		"its kernel is not there yet":   func(c *cluster, s Session) { s.Number++; c.reach(2, s, 0) },
		"its server s1 has lost its": func(c *cluster, s Session) {
			n := c.nodes[1].table
			n.mu.Lock()
			n.run++
			clear(n.rows)
			n.order.Init()
			n.mu.Unlock()
		},
		"it says that it is further than it was sent": func(c *cluster, s Session) {
			s.Number++
			s.Log, s.Sent, s.Applied, s.Programmed = c.store.cluster, c.store.Head().Seq, 1<<62, 1<<62
			c.nodes[2].table.Put(s)
		},
		"it has not received it": func(c *cluster, s Session) { s.Number++; s.Log = c.store.cluster; c.nodes[2].table.Put(s) },
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, time.Now)
				cn := c.cns(1)[0]
				defer c.run()()
				c.elect(0)
				seq := c.store.Head().Seq
				s := connect(cn, 1, 1)
				c.reach(1, s, seq)
				wait(5 * time.Second)
				if v := c.wait(2, c.store.Head().Seq-1, time.Second, log.CNScope(cn)); !v.Done {
					t.Fatalf("before: %+v", v)
				}
				do(c, s)
				wait(5 * time.Second)
				v := c.wait(2, seq, 3*time.Second, log.CNScope(cn))
				if v.Done && want != "its server s1 does not answer" || len(v.Missing) != 1 || !strings.HasPrefix(v.Missing[0].Reason, want) || v.Missing[0].Hostname != "cn0" {
					t.Errorf("got %+v, want reason %q", v, want)
				}
			})
		})
	}
}

// SAFETY B1 and B2: whatever agents, servers and leaders do, a barrier that says
// done is right: each CN's newest session that the cluster was told of has
// programmed the seq in the log of the cluster; one of a single NIC, that it has all that
// concerns the NIC (SAFETY L2).
func TestBarrierNeverLies(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, time.Now)
			cns := c.cns(4)
			stop := c.run()
			defer stop()
			c.elect(0)
			// truth is what each CN's newest session has really programmed.
			type truth struct {
				session Session
				server  int
				kernel  log.Seq
				reached log.Seq // except for the link of NIC 1, which the kernel does not have
			}
			now := make([]truth, len(cns))
			for i, cn := range cns {
				now[i] = truth{session: gone(connect(cn, 1, 0))}
			}
			for range rapid.IntRange(5, 60).Draw(rt, "steps") {
				i := rapid.IntRange(0, len(cns)-1).Draw(rt, "cn")
				cn := &now[i]
				switch op := rapid.SampledFrom([]string{"connect", "restart", "end", "program", "lag", "late", "write", "elect", "wait", "pass", "all but one", "of another", "of one"}).Draw(rt, "op"); op {
				case "connect", "restart":
					if op == "restart" { // with an old cache: the kernel is not known
						cn.session.Incarnation++
						cn.kernel, cn.reached = 0, 0
					}
					cn.session.Number++
					cn.session.Gone = false
					cn.server = rapid.IntRange(0, 2).Draw(rt, "server")
					c.reach(cn.server, cn.session, cn.kernel)
				case "end":
					if !cn.session.Gone {
						cn.session.Gone = true
						c.nodes[cn.server].table.Put(cn.session)
					}
				case "program":
					if !cn.session.Gone {
						cn.kernel = c.store.Head().Seq
						c.reach(cn.server, cn.session, cn.kernel)
					}
				case "all but one":
					if !cn.session.Gone {
						cn.reached = c.store.Head().Seq
						c.reachBut(cn.server, cn.session, cn.kernel, 1, feed.Wait{Kind: feed.WaitNIC, NIC: macOf(1)})
					}
				case "of another", "of one": // barriers of changes of one NIC
					seq, one := c.store.Head().Seq, op == "of one"
					q := Query{Seq: seq, Scopes: []log.Scope{log.AllScope()}, Timeout: 300 * time.Millisecond, Concern: &Concern{NICs: []log.MAC{macOf(2)}}}
					if one {
						q.Concern.NICs[0] = macOf(1)
					}
					v, err := c.nodes[rapid.IntRange(0, 2).Draw(rt, "server")].fabric.Wait(t.Context(), q)
					for j := range now {
						if there := now[j].kernel >= seq || !one && now[j].reached >= seq; err == nil && v.Done && (now[j].session.Gone || !there) {
							rt.Fatalf("%s: done at %d, while CN %d is missing: %+v", op, seq, j, now)
						}
					}
				case "lag": // the kernel is there, and no server knows it
					cn.kernel = c.store.Head().Seq
				case "late": // something of an older session comes late
					old := cn.session
					old.Gone = false
					if old.Number > 0 {
						old.Number--
						c.reach(rapid.IntRange(0, 2).Draw(rt, "server"), old, c.store.Head().Seq)
					}
				case "write":
					c.create(&log.NICTag{Name: fmt.Sprintf("tag%d", c.store.Head().Seq)})
				case "elect":
					c.elect(rapid.IntRange(0, 2).Draw(rt, "server"))
				case "pass":
					time.Sleep(time.Duration(rapid.IntRange(1, 2000).Draw(rt, "ms")) * time.Millisecond)
				case "wait":
					seq := c.store.Head().Seq
					v := c.wait(rapid.IntRange(0, 2).Draw(rt, "server"), seq, 300*time.Millisecond, log.AllScope())
					missing := 0
					for j := range now {
						if now[j].session.Gone || now[j].kernel < seq {
							missing++
						}
					}
					if v.Done && missing > 0 {
						rt.Fatalf("done at %d, while %d CNs are missing: %+v", seq, missing, now)
					}
					if !v.Done && len(v.Missing) == 0 && v.Reason == "" {
						rt.Fatalf("not done without a reason: %+v", v)
					}
				}
			}
		})
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(poll{run: 1, since: 2}.encode())
	f.Add(poll{run: 1, since: 2, wanted: 3, cns: []log.UUID{testUUID(1), testUUID(2)}}.encode())
	a := pollAnswer{run: 1, version: 2, rows: []Reported{{Session: connect(testUUID(1), 2, 3)}}}
	f.Add(a.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := decodePoll(b); err == nil {
			if again, err := decodePoll(p.encode()); err != nil || !reflect.DeepEqual(again, p) {
				t.Errorf("poll %+v became %+v: %v", p, again, err)
			}
		}
		if a, err := decodeAnswer(b); err == nil {
			again, err := decodeAnswer(a.encode())
			if err != nil || len(again.rows) != len(a.rows) {
				t.Errorf("answer of %d sessions became one of %d: %v", len(a.rows), len(again.rows), err)
			}
			for i := range again.rows {
				if !reflect.DeepEqual(again.rows[i], a.rows[i]) {
					t.Errorf("session %+v became %+v", a.rows[i], again.rows[i])
				}
			}
		}
	})
}

// Any server learns where a CN is connected; one that is expunged stays so,
// whatever connects in its name.
func TestWhereAndExpunged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cns := c.cns(3)
		defer c.run()()
		c.elect(0)
		result, err := c.store.Propose(t.Context(), &log.Change{ID: testUUID(1 << 41), Ops: []log.Op{{
			Action: log.Update, Kind: log.KindServer, ID: cns[1].String(), Set: []string{"status"}, Object: &log.Server{Status: expunged},
		}}})
		if err != nil || result.Refusal != nil {
			t.Fatal(err, result.Refusal)
		}
		c.nodes[1].table.Put(connect(cns[0], 1, 1))
		c.nodes[2].table.Put(connect(cns[1], 1, 1))
		wait(5 * time.Second)
		for i, want := range []string{"s1", "s2", ""} {
			for _, n := range c.nodes {
				if got, err := n.fabric.Where(t.Context(), cns[i]); err != nil || got != want {
					t.Errorf("CN %d is at %q, %v; want %q", i, got, err, want)
				}
			}
		}
		// One that has just come is asked for at once, not with the next round.
		wait(300 * time.Millisecond)
		c.nodes[1].table.Put(connect(cns[2], 1, 1))
		if got, err := c.nodes[2].fabric.Where(t.Context(), cns[2]); err != nil || got != "" {
			t.Errorf("before any server was asked, it is at %q, %v", got, err)
		}
		wait(whereGap)
		if got, err := c.nodes[2].fabric.Where(t.Context(), cns[2]); err != nil || got != "s1" {
			t.Errorf("after %s, it is at %q, %v; want s1", whereGap, got, err)
		}
		c.nodes[2].table.Put(gone(connect(cns[1], 1, 1)))
		wait(time.Minute)
		if got := strings.Join(c.store.statuses(), ", "); strings.Count(got, "cn1") != 1 || !strings.Contains(got, "cn1 expunged") {
			t.Errorf("statuses that were set: %s", got)
		}
	})
}
