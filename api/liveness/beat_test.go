package liveness

import (
	"testing"
	"testing/synctest"
	"time"

	"rutter/log"
)

// beating posts like cn-agent: to one server, 5 s after each answer.
func beating(c *cluster, server, times int, cns ...log.UUID) {
	for range times {
		for _, cn := range cns {
			c.nodes[server].fabric.Beat(cn, BeatHolds)
		}
		wait(5 * time.Second)
	}
}

func TestHeartbeatsMakeRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cns := c.cns(2)
		defer c.run()()
		c.elect(0)
		beating(c, 1, 8, cns...)
		expect(t, c, "cn0 running", "cn1 running")
		list, err := c.nodes[2].fabric.List(t.Context())
		if err != nil || len(list) != 2 || !list[0].Beats || !list[0].Alive || list[0].Server != "s1" || list[0].HeardMS < 4000 || list[0].HeardMS > 6000 {
			t.Fatalf("listed %+v, %v", list, err)
		}
		beating(c, 1, 10, cns[0])
		expect(t, c, "cn0 running", "cn1 running", "cn1 unknown")
		beating(c, 2, 2, cns...)
		expect(t, c, "cn0 running", "cn1 running", "cn1 unknown", "cn1 running")
	})
}

// The fault of spec/cnapi.md §4.2, by heartbeats: what A once had never overrides
// what B gets, whatever becomes of A and of the leader.
func TestHeartbeatsFailOver(t *testing.T) {
	for name, then := range map[string]func(c *cluster){
		"A stays":                  func(*cluster) {},
		"A dies":                   func(c *cluster) { c.setDown(0, true) },
		"A comes back after":       func(c *cluster) { c.setDown(0, true); time.AfterFunc(20*time.Second, func() { c.setDown(0, false) }) },
		"the leader becomes B":     func(c *cluster) { c.elect(1) },
		"the leader becomes A":     func(c *cluster) { c.elect(0) },
		"the leader moves often":   func(c *cluster) { c.elect(1); time.AfterFunc(9*time.Second, func() { c.elect(0) }) },
		"A brings an old one late": func(c *cluster) { time.AfterFunc(15*time.Second, func() { c.lateBeat(0, 14*time.Second) }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, time.Now)
				cns := c.cns(1)
				defer c.run()()
				c.elect(2)
				beating(c, 0, 10, cns...)
				expect(t, c, "cn0 running")
				then(c)
				beating(c, 1, 30, cns...)
				expect(t, c, "cn0 running")
			})
		})
	}
}

// lateBeat is a heartbeat that a server brings long after it came.
func (c *cluster) lateBeat(server int, age time.Duration) {
	f := c.nodes[server].fabric
	f.beats.put(testUUID(0x100), beat{f.cfg.Now().Add(-age), time.Minute})
}

// One that came before a gap is no proof that the CN is there now.
func TestLateHeartbeatIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cns := c.cns(1)
		defer c.run()()
		c.elect(0)
		c.setDown(1, true)
		c.nodes[1].fabric.Beat(cns[0], BeatHolds)
		wait(time.Minute)
		c.setDown(1, false)
		wait(time.Minute)
		expect(t, c)
	})
}

func TestUnsetupServerAnnouncesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cns := c.cns(1)
		defer c.run()()
		c.elect(0)
		for range 4 {
			c.nodes[1].fabric.Beat(cns[0], AnnounceHolds)
			wait(time.Minute)
		}
		expect(t, c, "cn0 running")
		wait(20 * time.Second)
		expect(t, c, "cn0 running")
		wait(20 * time.Second)
		expect(t, c, "cn0 running", "cn0 unknown")
	})
}

// A session and heartbeats of one CN, as while its agent is replaced: neither
// ends the other.
func TestSessionsAndHeartbeatsAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Now)
		cns := c.cns(1)
		defer c.run()()
		c.elect(0)
		session := connect(cns[0], 9, 1)
		c.nodes[1].table.Put(session)
		beating(c, 2, 4, cns...)
		c.nodes[1].table.Put(gone(session))
		beating(c, 2, 12, cns...) // it goes on by heartbeats
		c.nodes[0].table.Put(connect(cns[0], 9, 2))
		wait(2 * time.Minute) // and by a session again
		expect(t, c, "cn0 running")
	})
}

func TestBeatsAreBounded(t *testing.T) {
	b := newBeats()
	now := time.Unix(1, 0)
	for i := range MaxBeats {
		if !b.put(testUUID(i), beat{now, BeatHolds}) {
			t.Fatalf("no room for heartbeat %d", i)
		}
	}
	if b.put(testUUID(MaxBeats), beat{now, BeatHolds}) || !b.put(testUUID(1), beat{now, BeatHolds}) {
		t.Error("another CN found room, or one that waits already did not")
	}
	taken := 0
	for n := len(b.take()); n > 0; n = len(b.take()) {
		taken += n
	}
	if taken != MaxBeats {
		t.Errorf("%d were taken, want %d", taken, MaxBeats)
	}
}

func FuzzAnswerBeats(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 's', '1'})
	f.Add(append([]byte{0, 0, 0, 1}, make([]byte, 24)...))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, body []byte) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, time.Now)
			fabric := c.nodes[0].fabric
			fabric.become(newLeaderTerm(fabric.cfg, 1))
			_, err := fabric.Answer(t.Context(), append([]byte{askBeats}, body...))
			if err == nil && (len(body) < 4 || len(fabric.current().beats) > len(body)/beatBytes) {
				t.Errorf("%d bytes made %d heartbeats", len(body), len(fabric.current().beats))
			}
		})
	})
}
