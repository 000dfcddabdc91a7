package serve

import (
	"strings"
	"testing"
	"time"

	"rutter/raftstore"
)

// TestServerStatusLine: what systemctl status shows is what the server does or waits for.
func TestServerStatusLine(t *testing.T) {
	members := []raftstore.MemberStatus{{Member: raftstore.Member{ID: "s2"}}, {Member: raftstore.Member{ID: "s1"}}}
	for want, st := range map[string]raftstore.Status{
		"leads; servers: s1 s2; compute nodes connected here: 3":                                               {ID: "s1", Ready: true, LeaderID: "s1", Members: members},
		"follows s2; servers: s1 s2; compute nodes connected here: 3":                                          {ID: "s1", Ready: true, LeaderID: "s2", Members: members},
		"waits: this server has not caught up yet; belongs to no cluster yet; compute nodes connected here: 3": {ID: "s1", NotReady: raftstore.ErrNotReady.Error()},
		"serves nothing: its state differs; servers: s1 s2; compute nodes connected here: 3; alarm: no room":   {ID: "s1", Diverged: "raftstore: its state differs", Members: members, NoRoom: "no room"},
		"follows s2; one of 10 servers; compute nodes connected here: 3; alarm: the clock of s1 is wrong":      {ID: "s1", Ready: true, LeaderID: "s2", Members: make([]raftstore.MemberStatus, 10), Clock: raftstore.Clock{Alarms: []string{"the clock of s1 is wrong"}}},
	} {
		if got := statusLine(&st, 3); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// TestServerStuck: entries that nothing takes are a reason for the watchdog; a disk that
// hangs, a state that is replaced and an idle cluster are none.
func TestServerStuck(t *testing.T) {
	begun := time.Now()
	for name, c := range map[string]struct {
		st      raftstore.Status
		waiting uint64
		stuck   bool
	}{
		"nothing takes them":    {raftstore.Status{Applied: 7}, 3, true},
		"nothing waits":         {raftstore.Status{Applied: 7}, 0, false},
		"the disk hangs":        {raftstore.Status{Applied: 7, DiskOp: 30 * time.Second}, 3, false},
		"the state is replaced": {raftstore.Status{Applied: 7, Rebuild: true}, 3, false},
		"a short write goes on": {raftstore.Status{Applied: 7, DiskOp: time.Millisecond}, 3, true},
	} {
		var w Watched
		var got string
		for s := range 5 {
			got = w.stuck(&c.st, c.waiting, begun.Add(time.Duration(s)*time.Minute))
		}
		if (got != "") != c.stuck {
			t.Errorf("%s: %q", name, got)
		}
		c.st.Applied++
		if got := w.stuck(&c.st, c.waiting, begun.Add(10*time.Minute)); strings.Contains(got, "wait") {
			t.Errorf("%s: after progress: %q", name, got)
		}
	}
}
