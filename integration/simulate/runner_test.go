package simulate

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/history"
)

// tinyPool runs histories in the tiny world.
func tinyPool(t *testing.T) *Pool {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Pool{Program: program, World: "tiny"}
	t.Cleanup(p.Close)
	return p
}

func tinyHistory(faults ...history.Fault) history.History {
	return history.History{Seed: 7, Servers: 3, Agents: 5, Clients: 1, Duration: time.Minute, Faults: faults}
}

var (
	killFirst = history.Fault{At: 10 * time.Second, For: 8 * time.Second, Kind: history.Kill, On: "s1", Seed: 1}
	cutSecond = history.Fault{At: 12 * time.Second, For: 9 * time.Second, Kind: history.Cut, On: "s2", Seed: 2}
	panics    = history.Fault{At: 30 * time.Second, For: time.Second, Kind: history.Rot, N: 1, On: "s3", Seed: 3}
	leaks     = history.Fault{At: 30 * time.Second, Kind: history.Lie, On: "cn1", Seed: 4}
	hangs     = history.Fault{At: 30 * time.Second, For: time.Second, Kind: history.Lose, On: "s3", Seed: 5}
)

// A process runs one history after the other, and what ends it is the failure of that history.
func TestPool(t *testing.T) {
	p := tinyPool(t)
	for _, c := range []struct {
		name   string
		limit  time.Duration
		h      history.History
		says   string // of the failure; "": it passes
		output string
	}{
		{"passes", 0, tinyHistory(killFirst), "", ""},
		{"fails", 0, tinyHistory(killFirst, cutSecond), "was acknowledged and is lost", ""},
		{"panics", 0, tinyHistory(panics), "panic: page 7 is damaged", "tinyFault"},
		{"passes after a panic", 0, tinyHistory(), "", ""},
		{"leaks a goroutine", 0, tinyHistory(leaks), "panic: deadlock: main bubble goroutine has exited but blocked goroutines remain", "tinyFault"},
		{"hangs", time.Second, tinyHistory(hangs), "needs more than 1s of processor time, or 4s of real time", "sync.(*Mutex).Lock"},
		{"passes after a hang", 0, tinyHistory(), "", ""},
	} {
		p.Limit = c.limit
		r, err := p.Run(t.Context(), c.h)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case c.says == "" && r.Failed():
			t.Errorf("%s: %q", c.name, r.Failures)
		case c.says != "" && (!r.Failed() || !strings.Contains(r.Failures[0], c.says)):
			t.Errorf("%s: %q, want %q", c.name, r.Failures, c.says)
		case !strings.Contains(r.Output, c.output):
			t.Errorf("%s: the output lacks %q:\n%s", c.name, c.output, r.Output)
		case c.says == "" && r.Simulated < time.Minute:
			t.Errorf("%s: %v simulated", c.name, r.Simulated)
		}
	}
	if r, err := p.Run(t.Context(), tinyHistory(killFirst)); err != nil || r.Coverage[coverage.Restart] != 1 {
		t.Errorf("covered %v, %v", r.Coverage, err)
	}
}

// The end of a context ends a history that hangs.
func TestPoolIsEnded(t *testing.T) {
	p := tinyPool(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if r, err := p.Run(ctx, tinyHistory(hangs)); err == nil {
		t.Errorf("it came to %v", r)
	}
}

// A night finds the histories that fail, says how to run them again, sorts them, shrinks one of
// a sort to the two faults that matter, and keeps it in a file that fails as it did.
func TestNight(t *testing.T) {
	var out bytes.Buffer
	pool := tinyPool(t)
	n := &Night{Pool: pool, Workers: runtime.NumCPU(), Out: &out, Keep: t.TempDir(), Shrink: true}
	var seeds []uint64
	for seed := uint64(1); len(seeds) < 30; seed++ {
		if harmless(OfSeed(seed, 0)) {
			seeds = append(seeds, seed)
		}
	}
	s, err := n.Run(t.Context(), seeds)
	if err == nil || s.Failed == 0 || s.Failed == s.Histories {
		t.Fatalf("%v, %+v\n%s", err, s, &out)
	}
	if s.Histories != 30 || s.PerSecond <= 0 || s.Speedup <= s.PerSecond || s.Covered != 1 || s.Unfinished != 0 {
		t.Errorf("%+v", s)
	}
	for _, says := range []string{"again: make simulate SEED=", "times: write # was acknowledged and is lost", "shrunk in", "kept in", "restart"} {
		if !strings.Contains(out.String(), says) {
			t.Errorf("it does not say %q:\n%s", says, &out)
		}
	}
	files, _ := filepath.Glob(filepath.Join(n.Keep, "*.json"))
	var shrunk []history.File
	for _, path := range files {
		f, err := history.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Removed) > 0 {
			shrunk = append(shrunk, f)
		}
	}
	if len(files) != s.Failed || len(shrunk) != 1 {
		t.Fatalf("%d files of %d failures, %d of one sort are shrunk", len(files), s.Failed, len(shrunk))
	}
	f := shrunk[0]
	if len(f.History.Faults) != 2 || f.History.Agents != 1 {
		t.Errorf("it is not small:\n%v\n%q", f.History, f.Removed)
	}
	out.Reset()
	if err := n.Replay(t.Context(), f.History, 3); err == nil || !strings.Contains(out.String(), "3 of 3 replays failed") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// harmless leaves out what ends the tiny world's process, which takes longer.
func harmless(h history.History) bool {
	for _, f := range h.Faults {
		if f.Kind == history.Lie || f.On == "s3" && (f.Kind == history.Rot || f.Kind == history.Lose) {
			return false
		}
	}
	return true
}

// A night that is ended early says how many seeds it did not run.
func TestNightIsEnded(t *testing.T) {
	var out bytes.Buffer
	n := &Night{Pool: tinyPool(t), Workers: 1, Out: &out, Keep: t.TempDir()}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, _ := n.Run(ctx, []uint64{1, 2, 3}); s.Unfinished != 3 || s.Histories != 0 {
		t.Errorf("%+v", s)
	}
}

// A night in which a goal never occurred fails.
func TestNightMissesAGoal(t *testing.T) {
	var out bytes.Buffer
	n := &Night{Pool: tinyPool(t), Out: &out, begun: time.Now(), took: time.Second}
	n.table.Merge(coverage.Table{Histories: coverage.Enough})
	if _, err := n.report(t.Context(), 0, nil); err == nil || !strings.Contains(err.Error(), "never came to the state leader_change") {
		t.Error(err)
	}
}

func TestSeeds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seeds")
	if _, err := NextSeed(path); err == nil {
		t.Error("there is no file")
	}
	if err := Advance(path, 812); err != nil {
		t.Fatal(err)
	}
	if seed, err := NextSeed(path); err != nil || seed != 812 {
		t.Errorf("%d, %v", seed, err)
	}
	if err := os.WriteFile(path, []byte("# why\n\n12 a vote was lost\n9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NextSeed(path); err == nil || !strings.Contains(err.Error(), "it holds one number") {
		t.Error(err)
	}
	if seeds, err := FixedSeeds(path); err != nil || len(seeds) != 2 || seeds[0] != 12 || seeds[1] != 9 {
		t.Errorf("%v, %v", seeds, err)
	}
	if err := os.WriteFile(path, []byte("9\nx\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := FixedSeeds(path); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Error(err)
	}
}

// What is planted is found by the simulator or by a test of its own.
func TestCountPlanted(t *testing.T) {
	p, err := CountPlanted(filepath.Join("..", ".."))
	if err != nil || p.Total == 0 || p.Found+p.Own > p.Total {
		t.Errorf("%v, %v", p, err)
	}
	if _, err := CountPlanted("/dev/null"); err == nil {
		t.Error("a root that is no folder has no error")
	}
}

func TestSort(t *testing.T) {
	a := Result{Failures: []string{"seq 12: chain 0xab12 of 018f3c1e-aa00-7000-8000-000000000001 differs at s2\nmore"}}
	b := Result{Failures: []string{"seq 9: chain 0xcd of 018f3c1e-bb00-7000-8000-000000000001 differs at s3"}}
	c := Result{Failures: []string{"seq 9 is missing"}}
	if a.Sort() != b.Sort() || a.Sort() == c.Sort() || (Result{}).Sort() != "" {
		t.Errorf("%q, %q, %q", a.Sort(), b.Sort(), c.Sort())
	}
}
