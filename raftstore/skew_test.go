package raftstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/history"
	"rutter/raftstore/internal/window"
)

const year = 365 * 24 * time.Hour

// skewed starts a cluster of three whose wall clocks are off by what is stored in
// the offsets, which may change while they run.
func skewed(t *testing.T, tweaks ...func(*Config)) (nodes []*node, offsets []*atomic.Int64) {
	t.Helper()
	nodes = three(t, func(cfg *Config) {
		off := new(atomic.Int64)
		offsets = append(offsets, off)
		cfg.Now = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
		for _, tweak := range tweaks {
			tweak(cfg)
		}
	})
	return nodes, offsets
}

// becomes waits for a condition.
func becomes(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for ctx := patience(t); !holds(); {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain until %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// led makes a server the leader, by asking until it is.
func led(t *testing.T, nodes []*node, by int) {
	t.Helper()
	becomes(t, "s"+fmt.Sprint(by+1)+" leads", func() bool {
		if nodes[by].lead.leading() {
			return true
		}
		ctx, cancel := context.WithTimeout(patience(t), time.Second)
		defer cancel()
		_ = leaderOf(t, nodes).members.Transfer(ctx, nodes[by].cfg.ID)
		return nodes[by].lead.leading()
	})
}

// timeOff is how far the log's time is ahead of the test's clock. It waits until the
// server has a time: one that has just started, or is behind, may have read no entry yet.
func timeOff(t *testing.T, n *node) (off time.Duration) {
	t.Helper()
	becomes(t, n.cfg.ID+" has a time", func() bool {
		has := false
		n.View(func(v View) { has, off = v.Time != 0, time.Until(v.Time.Std()) })
		return has
	})
	return off
}

// alarmed reports whether a server's status has an alarm with a text in it.
func alarmed(n *node, text string) bool {
	for _, alarm := range n.Status().Clock.Alarms {
		if strings.Contains(alarm, text) {
			return true
		}
	}
	return false
}

// near is how far the log's time may be from true time when one clock of three is
// wrong: the bound, and what a loaded machine takes between stamp and look.
const near = 3*time.Second + 5*time.Second

// A leader's clock that is moved, by any amount, moves neither the log's time nor the
// right of any client to write; it loses the leadership, every server says so, and it is
// not given it back until its clock is right.
func TestClockPoison(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	t.Parallel()
	for _, off := range []time.Duration{year, time.Hour, -2 * time.Minute} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			nodes, offsets := skewed(t)
			led(t, nodes, 2)
			must(t, nodes[0], tagChange(newID(), "before"))
			offsets[2].Store(int64(off))
			for i := 0; i < 5 || nodes[2].lead.leading(); i++ {
				must(t, nodes[i%3], tagChange(newID(), fmt.Sprintf("while%d", i)))
				if at := timeOff(t, nodes[1]); at.Abs() > near {
					t.Fatalf("one clock is %v off: the log's time is %v off", off, at)
				}
				time.Sleep(20 * time.Millisecond)
				if i > 1000 {
					t.Fatal("it goes on leading")
				}
			}
			for _, n := range nodes {
				becomes(t, n.cfg.ID+" says so", func() bool { return alarmed(n, "s3") && alarmed(n, off.Abs().String()[:2]) })
			}
			// Transfer is not used, because it goes to the leader. That may be s3 again: on a busy
			// machine no other server may have taken the leadership at the first attempt.
			for _, n := range nodes[:2] {
				err := n.members.adminLocal(patience(t), adminRequest{Do: "transfer", Member: Member{ID: "s3"}})
				if err == nil || !strings.Contains(err.Error(), "the clock of s3") {
					t.Errorf("%s gives the leadership to a server whose clock is wrong: %v", n.cfg.ID, err)
				}
			}
			becomes(t, "a server with a right clock leads", func() bool { return nodes[0].lead.leading() || nodes[1].lead.leading() })
			offsets[2].Store(0)
			becomes(t, "no server has an alarm", func() bool {
				for _, n := range nodes {
					if len(n.Status().Clock.Alarms) > 0 {
						return false
					}
				}
				return true
			})
			led(t, nodes, 2)
			must(t, nodes[0], tagChange(newID(), "after"))
			checkSame(t, nodes)
		})
	}
}

// A server that starts with a wrong clock and is elected gives the leadership on
// before it has stamped anything.
func TestWrongClockAtStart(t *testing.T) {
	t.Parallel()
	nodes, offsets := skewed(t)
	must(t, nodes[0], tagChange(newID(), "before"))
	for _, n := range nodes {
		n.halt(t)
	}
	offsets[0].Store(int64(year))
	for i, n := range nodes {
		nodes[i] = n.again(t)
	}
	becomes(t, "a server with a right clock leads", func() bool { return nodes[1].lead.leading() || nodes[2].lead.leading() })
	// With one other clock that differs no server is called wrong, and s1 may stamp.
	becomes(t, "s1 has read both other clocks", func() bool {
		c := nodes[0].Clock() // it is judged too while no other clock is known
		return c.Judged && len(c.Others) == 2 && c.Others[0].Known && c.Others[1].Known
	})
	for i := range 3 { // it is elected all the same: any server may stand for election
		becomes(t, "s1 is elected", func() bool {
			l := leaderOf(t, nodes)
			return l.lead.handOverTo(patience(t), l.raft.Load(), Member{ID: "s1", Address: nodes[0].Address()}) == nil
		})
		for range 3 {
			must(t, nodes[1], tagChange(newID(), fmt.Sprintf("x%d_%d", i, rand.Uint32())))
		}
		if at := timeOff(t, nodes[1]); at.Abs() > near {
			t.Fatalf("the log's time is %v off", at)
		}
	}
	if stamped := nodes[0].Status().Proposals; stamped > 0 {
		t.Errorf("it stamped %d changes before it gave the leadership on", stamped)
	}
}

// Two of three are up, and their clocks differ: it is unknown which is right, so the
// log's time goes on from its last entry, with either leader; both report it.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	nodes, offsets := skewed(t)
	must(t, nodes[0], tagChange(newID(), "before"))
	for i, n := range nodes {
		n.halt(t)
		if i == 1 {
			offsets[1].Store(int64(year))
		}
	}
	nodes[0], nodes[1] = nodes[0].again(t), nodes[1].again(t)
	nodes = nodes[:2]
	for by := range nodes {
		led(t, nodes, by)
		for i := range 10 {
			must(t, nodes[i%2], tagChange(newID(), fmt.Sprintf("by%d_%d", by, i)))
		}
		if at := timeOff(t, nodes[0]); at.Abs() > near {
			t.Errorf("led by s%d: the log's time is %v off", by+1, at)
		}
		for _, n := range nodes {
			becomes(t, n.cfg.ID+" says so", func() bool { return alarmed(n, "differ by 8760h0m") })
		}
	}
	if _, err := nodes[0].times.clock.Sure(); !errors.Is(err, ErrClock) {
		t.Errorf("history may go by a clock that is a guess: %v", err)
	}
}

// setTimeChange sets the log's time.
func setTimeChange(id log.UUID, create bool, value string) *log.Change {
	op := log.Op{Action: log.Update, Kind: log.KindSetting, ID: projections.SettingClusterTime, Set: []string{"value"}, Object: &log.Setting{Value: value}}
	if create {
		op = log.Op{Action: log.Create, Kind: log.KindSetting, Set: []string{"name", "value"}, Object: &log.Setting{Name: projections.SettingClusterTime, Value: value}}
	}
	return &log.Change{ID: id, Actor: "test", Ops: []log.Op{op}}
}

// aYearAhead returns the only server of a log whose time is a year ahead, as one with a
// wrong clock of before leaves it: clocks were right, then not, and are again.
func aYearAhead(t *testing.T) *node {
	t.Helper()
	var off atomic.Int64
	n := one(t, func(cfg *Config) {
		cfg.CheckpointEvents, cfg.UpkeepEvery = 5, 50*time.Millisecond
		cfg.Now = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
	})
	for i := range 10 {
		must(t, n, tagChange(newID(), fmt.Sprintf("good%d", i)))
	}
	n.halt(t)
	off.Store(int64(year))
	n = n.again(t)
	for i := range 10 {
		must(t, n, tagChange(window.NewID(time.Now().Add(year)), fmt.Sprintf("bad%d", i)))
	}
	n.halt(t)
	off.Store(0)
	return n.again(t)
}

// textOf is a time as the setting wants it.
func textOf(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

// A log whose time is a year ahead says so, and an entry sets it right: writes go on,
// restarts, images, rebuilt folders and checks have the same time, and the past is
// found by time.
func TestMend(t *testing.T) {
	t.Parallel()
	n := aYearAhead(t)
	becomes(t, "it says so", func() bool { return n.lead.leading() && alarmed(n, "rutter cluster time set") })
	if at := timeOff(t, n); at < year-time.Hour {
		t.Fatalf("the log's time is %v ahead", at)
	}
	refused, err := n.Propose(patience(t), setTimeChange(newID(), true, textOf(time.Now().Add(time.Hour))))
	if err != nil || refused.Refusal == nil || !strings.Contains(refused.Refusal.Message, "ahead of the servers' agreed clock") {
		t.Errorf("a time that no clock shows: %+v, %v", refused.Refusal, err)
	}
	c := setTimeChange(newID(), true, textOf(time.Now()))
	result := must(t, n, c)
	mended := time.Now()
	if at := timeOff(t, n); at.Abs() > near {
		t.Fatalf("the log's time is %v off after it was set", at)
	}
	if again := must(t, n, c); again.First != result.First {
		t.Errorf("a retry gives %+v, the first was %+v", again, result)
	}
	for i := range 10 {
		must(t, n, tagChange(newID(), fmt.Sprintf("after%d", i)))
	}
	if len(n.Status().Clock.Alarms) > 0 {
		t.Errorf("alarms after it was set: %q", n.Status().Clock.Alarms)
	}
	checkPlaces(t, n.Past().SeqAt, all(t, n.Store), result.First, mended)
	state, err := n.Past().StateAt(patience(t), result.First+2)
	if err != nil || time.Until(state.Time().Std()).Abs() > near {
		t.Errorf("the state behind it is of %v: %v", state.Time(), err)
	}
	checkFold(t, n.Store)
	head := n.Head()
	n.halt(t)
	f, err := history.OpenFolder(n.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	found, err := f.Verify(patience(t), nil)
	if err != nil || len(found.Problems) > 0 {
		t.Errorf("verify: %v, %v", found.Problems, err)
	}
	if found.Head != head {
		t.Errorf("head %v, want %v", found.Head, head)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	n = n.again(t)
	becomes(t, "it leads again", n.lead.leading)
	if at := timeOff(t, n); at.Abs() > near {
		t.Errorf("after a restart the log's time is %v off", at)
	}
	must(t, n, tagChange(newID(), "restarted"))
}

// checkPlaces looks entries up by time, in a log whose time was set back at mend.
func checkPlaces(t *testing.T, seqAt func(log.Time) (log.Seq, error), entries []log.Entry, mend log.Seq, mended time.Time) {
	t.Helper()
	last := entries[len(entries)-1].Seq
	for _, e := range entries {
		event, err := e.Event()
		if err != nil {
			t.Fatal(err)
		}
		got, err := seqAt(event.Time)
		if err != nil {
			t.Fatal(err)
		}
		ahead := time.Until(event.Time.Std()) > time.Hour
		if want := e.Seq; !ahead && got != want || ahead && got != last {
			t.Errorf("seq %d of %s is found at %d", e.Seq, event.Time, got)
		}
		if ahead != (e.Seq > 10 && e.Seq < mend) {
			t.Errorf("seq %d has time %s", e.Seq, event.Time)
		}
	}
	if got, err := seqAt(log.TimeOf(mended.Add(-time.Minute))); err == nil && got >= mend {
		t.Errorf("a minute before it was set is found at %d, set at %d", got, mend)
	}
	if got, err := seqAt(log.TimeOf(mended.Add(time.Minute))); err != nil || got != last {
		t.Errorf("a minute later is found at %d, the last is %d: %v", got, last, err)
	}
}

// What was stamped before the log's time was set, and comes behind, does not bring
// the old time back; writers that run meanwhile see no error.
func TestMendUnderWriters(t *testing.T) {
	t.Parallel()
	n := aYearAhead(t)
	becomes(t, "it leads", n.lead.leading)
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		time.Sleep(300 * time.Millisecond)
	}()
	var failed atomic.Int64
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				// Ids of the log's time, whatever it is: this test is not about them.
				var at log.Time
				n.View(func(v View) { at = v.Time })
				if _, err := n.Propose(patience(t), tagChange(window.NewID(at.Std()), fmt.Sprintf("w%d_%d", w, i))); err != nil {
					failed.Add(1)
				}
			}
		}()
	}
	time.Sleep(100 * time.Millisecond)
	result := must(t, n, setTimeChange(newID(), true, textOf(time.Now())))
	<-stop
	must(t, n, tagChange(newID(), "after"))
	if at := timeOff(t, n); at.Abs() > near || failed.Load() > 0 {
		t.Errorf("the log's time is %v off, %d writes failed", at, failed.Load())
	}
	for _, e := range all(t, n.Store) {
		event, err := e.Event()
		if err != nil {
			t.Fatal(err)
		}
		if off := time.Until(event.Time.Std()); e.Seq >= result.First && off.Abs() > near {
			t.Errorf("seq %d, set at %d, has time %s", e.Seq, result.First, event.Time)
		}
	}
}

// All clocks were a year ahead, and are right again: the entry that sets time back
// reaches every server, and those that join, by entries and by an image.
func TestMendOfThree(t *testing.T) {
	t.Parallel()
	nodes, offsets := skewed(t)
	move := func(to time.Duration) {
		for i, n := range nodes {
			n.halt(t)
			offsets[i].Store(int64(to))
		}
		for i, n := range nodes {
			nodes[i] = n.again(t)
		}
	}
	move(year)
	for i := range 5 {
		must(t, nodes[0], tagChange(window.NewID(time.Now().Add(year)), fmt.Sprintf("bad%d", i)))
	}
	move(0)
	leaderOf(t, nodes)
	for _, n := range nodes {
		becomes(t, n.cfg.ID+" says so", func() bool { return alarmed(n, "rutter cluster time set") })
	}
	must(t, nodes[1], setTimeChange(newID(), true, textOf(time.Now())))
	for i := range 5 {
		must(t, nodes[i%3], tagChange(newID(), fmt.Sprintf("good%d", i)))
	}
	checkSame(t, nodes)
	for _, n := range nodes {
		if at := timeOff(t, n); at.Abs() > near {
			t.Errorf("%s: the log's time is %v off", n.cfg.ID, at)
		}
	}
	follower := nodes[0]
	if follower == leaderOf(t, nodes) {
		follower = nodes[1]
	}
	if err := follower.Rebuild(patience(t)); err != nil {
		t.Fatal(err)
	}
	must(t, nodes[2], setTimeChange(newID(), false, textOf(time.Now().Add(time.Second))))
	must(t, nodes[2], tagChange(newID(), "last"))
	checkSame(t, nodes)
	if at := timeOff(t, follower); at.Abs() > near {
		t.Errorf("rebuilt: the log's time is %v off", at)
	}
	for _, n := range nodes {
		if err := n.Serving(); err != nil {
			t.Errorf("%s: %v", n.cfg.ID, err)
		}
	}
}

// History does not go by a clock that may be wrong: while the clock of a lone server is a
// year ahead, the floor stays, however old the entries seem (SAFETY T1).
func TestFloorWaitsForASureClock(t *testing.T) {
	t.Parallel()
	var off atomic.Int64
	n := one(t, func(cfg *Config) {
		cfg.UpkeepEvery = time.Hour // it is done here
		cfg.Now = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
	})
	for i := range 5 {
		must(t, n, tagChange(newID(), fmt.Sprintf("t%d", i)))
	}
	move := func(age time.Duration) error {
		t.Helper()
		if err := n.SetRetention(patience(t), Retention{Age: age, Events: 2, Bytes: 1 << 28}); err != nil {
			t.Fatal(err)
		}
		if err := n.persister.Flush(); err != nil {
			t.Fatal(err)
		}
		return n.keeper.moveFloor(patience(t), n.raft.Load())
	}
	off.Store(int64(year))
	if err := move(time.Hour); !errors.Is(err, ErrClock) || n.Floor() != 0 {
		t.Errorf("by a clock that is a year ahead: %v, floor at %d; want %v, and the floor where it was", err, n.Floor(), ErrClock)
	}
	off.Store(0)
	if err := move(time.Hour); err != nil || n.Floor() != 0 {
		t.Errorf("by a clock that is right: %v, floor at %d; want all of the last hour kept", err, n.Floor())
	}
	if err := move(0); err != nil || n.Floor() != 3 {
		t.Errorf("with two entries to be kept: %v, floor at %d, want 3", err, n.Floor())
	}
}
