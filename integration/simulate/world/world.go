package world

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
	"rutter/raftstore"
)

// Options say how a history is run.
type Options struct {
	Log io.Writer // of servers and agents, and of what happens; nil: none
}

// Report says what a history came to.
type Report struct {
	Failures        []string // empty: all that must hold held
	Coverage        map[string]int
	Simulated, Real time.Duration
	Seen            *seen.Log
}

// world is one history under way.
type world struct {
	h       history.History
	o       Options
	net     *netw
	seen    *seen.Log
	folder  string
	members []raftstore.Member
	servers []*server
	ctx     context.Context

	mu       sync.Mutex // protects what follows
	failures []string
	coverage map[string]int
}

// Run runs a history in a bubble.
func Run(t *testing.T, h history.History, o Options) (report Report) {
	folder, err := os.MkdirTemp("", "world")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	begun := time.Now()
	synctest.Test(t, func(t *testing.T) {
		w := &world{h: h, o: o, folder: folder, seen: new(seen.Log), coverage: map[string]int{}}
		w.setDate()
		at := time.Now()
		w.live()
		report = Report{Failures: w.failures, Coverage: w.coverage, Simulated: time.Since(at), Seen: w.seen}
		lastDate = time.Now()
	})
	report.Real = time.Since(begun)
	return report
}

// lastDate is when the bubble before ended. Change ids count up in the process (package
// uuid keeps the last one's time), so each bubble begins later.
var lastDate = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *world) setDate() { time.Sleep(time.Until(lastDate.Add(time.Hour))) }

func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, fmt.Sprintf(format, args...))
}

func (w *world) unexpected(who string, err error) {
	w.seen.Add(who, seen.Process{State: "failed", Err: fmt.Sprint(err)})
}

func (w *world) raftLog() string {
	if w.h.WAL {
		return raftstore.RaftLogWAL
	}
	return raftstore.RaftLogBolt
}

func (w *world) logger(who string) *slog.Logger {
	if w.o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(w.o.Log, nil)).With("who", who)
}

func (w *world) live() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.ctx = ctx
	w.net = newNet(w.h.Seed)
	for i := range w.h.Servers {
		s := w.newServer(i)
		w.servers = append(w.servers, s)
		w.members = append(w.members, raftstore.Member{ID: s.id, Address: s.address(peerPort)})
	}
	for _, s := range w.servers {
		if err := s.start(); err != nil {
			w.fail("%v", err)
		}
	}
	time.Sleep(5 * time.Second)
	for _, s := range w.servers {
		st := s.store().Status()
		fmt.Println(s.id, st.State, st.Term, st.Ready, st.NotReady, st.Head)
	}
	for _, s := range w.servers {
		if err := s.stop(); err != nil {
			w.fail("stop %s: %v", s.id, err)
		}
	}
}
