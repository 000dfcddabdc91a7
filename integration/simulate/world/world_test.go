package world_test

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"rutter/integration/simulate/disk"
	"rutter/integration/simulate/history"
	"rutter/integration/simulate/oracle"
	"rutter/integration/simulate/world"
)

const s = time.Second

// faults are one history for each kind.
var faults = map[history.Kind][]history.Fault{
	"":               nil,
	history.Kill:     {{At: 3 * s, For: 2 * s, On: "s1"}, {At: 8 * s, For: 1 * s, On: "s2"}, {At: 10 * s, For: 2 * s, On: "s3"}, {At: 14 * s, On: "cn1", For: s}},
	history.Stop:     {{At: 3 * s, For: 2 * s, On: "s1"}, {At: 8 * s, For: 1 * s, On: "s2"}, {At: 12 * s, On: "cn1", For: s}},
	history.Cut:      {{At: 3 * s, For: 4 * s, On: "s1", To: "s2"}, {At: 8 * s, For: 5 * s, On: "s3"}, {At: 8 * s, For: 4 * s, On: "cn2"}},
	history.OneWay:   {{At: 3 * s, For: 4 * s, On: "s1", To: "s2"}, {At: 8 * s, For: 4 * s, On: "s3"}, {At: 8 * s, For: 5 * s, On: "s1", To: "cn2"}},
	history.Slow:     {{At: 3 * s, For: 8 * s, On: "s1", N: 100}, {At: 8 * s, For: 4 * s, On: "s3", N: 700}},
	history.Lossy:    {{At: 3 * s, For: 8 * s, On: "s1", N: 10}, {At: 8 * s, For: 4 * s, N: 30}},
	history.Reset:    {{At: 3 * s, On: "s1"}, {At: 8 * s}},
	history.HalfOpen: {{At: 3 * s, On: "s1"}, {At: 8 * s}},
	history.Pause:    {{At: 3 * s, For: 3 * s, On: "s1"}, {At: 8 * s, For: 3 * s, On: "s2"}, {At: 8 * s, For: 3 * s, On: "cn2"}},
	history.Transfer: {{At: 3 * s, On: "s1"}, {At: 8 * s, On: "s2"}, {At: 10 * s, On: "s3"}},
	history.Skew:     {{At: 3 * s, For: 5 * s, On: "s1", N: 2000}, {At: 8 * s, For: 5 * s, On: "s2", N: -60_000}, {At: 9 * s, For: 6 * s, On: "s3", N: 600_000}},
	history.Drift:    {{At: 3 * s, For: 12 * s, On: "s1", N: 100_000}},
	history.Hang:     {{At: 3 * s, For: 5 * s, On: "s1"}, {At: 9 * s, For: 3 * s, On: "s2"}, {At: 13 * s, For: s, On: "s3"}},
	history.SlowSync: {{At: 3 * s, For: 5 * s, On: "s1", N: 50}, {At: 9 * s, For: 3 * s, On: "s2", N: 500}, {At: 9 * s, For: 3 * s, On: "s3", N: 100}},
	history.Rot:      {{At: 6 * s, For: 2 * s, On: "s1", N: 1, Seed: 1}, {At: 12 * s, For: s, On: "s2", N: 8, Seed: 1}, {At: 3 * s, For: s, On: "cn1", N: 8}},
	history.Lose:     {{At: 6 * s, For: 2 * s, On: "s1"}, {At: 4 * s, On: "cn3"}},
	history.Old:      {{At: 10 * s, For: 2 * s, On: "cn1"}, {At: 14 * s, On: "cn3"}},
	history.Retain:   {{At: 3 * s, N: 20}},
	history.Remove:   {{At: 3 * s, For: 2 * s, On: "s1"}, {At: 10 * s, For: s, On: "s2"}},
	history.Older:    {{At: 3 * s, For: 4 * s, On: "s1", N: 6}, {At: 10 * s, For: 2 * s, On: "s2", N: 7}},
	history.Meddle:   {{At: 3 * s, On: "cn1", N: 3, Seed: 1}, {At: 8 * s, On: "cn2", N: 10, Seed: 2}},
	history.Power:    {{At: 3 * s, For: 2 * s, On: "s1", N: 10, Seed: 1}, {At: 9 * s, For: 2 * s, On: "s2", N: 3, Seed: 2}, {At: 9500 * time.Millisecond, For: 2 * s, On: "s3", N: 30, Seed: 3}},
	history.Full:     {{At: 3 * s, For: 5 * s, On: "s1", N: 10_000}, {At: 9 * s, For: 2 * s, On: "s2", N: 0}},
	history.Restore:  {{At: 5 * s, Kind: history.Snapshot}, {At: 10 * s, Kind: history.Restore}},
	history.Refuse:   {{At: 3 * s, For: 8 * s, On: "cn1", N: 30}, {At: 4 * s, For: 4 * s, On: "cn2", N: 100}},
}

// always are the kinds that run without RUTTER_LONG.
var always = []history.Kind{history.Kill, history.Power, history.Hang, history.Restore, history.Remove, history.OneWay}

func TestMain(m *testing.M) {
	if disk.Serve() {
		return
	}
	os.Exit(m.Run())
}

func TestWorld(t *testing.T) {
	d := disk.New(t)
	barriers, ran := 0, 0
	for kind, list := range faults {
		name := string(kind)
		if name == "" {
			name = "none"
		}
		if !slices.Contains(always, kind) && os.Getenv("RUTTER_LONG") == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			h := history.History{Seed: 1, Servers: 3, Agents: 5, Clients: 2, Duration: 20 * s}
			for _, f := range list {
				if f.Kind == "" {
					f.Kind = kind
				}
				h.Faults = append(h.Faults, f)
			}
			slices.SortStableFunc(h.Faults, func(a, b history.Fault) int { return cmp.Compare(a.At, b.At) })
			o := world.Options{Patience: time.Minute, Disk: d}
			if testing.Verbose() && os.Getenv("RUTTER_SIMULATE_LOG") != "" {
				o.Log = os.Stdout
			}
			r := world.Run(t, h, o)
			for _, f := range slices.Concat(r.Failures, oracle.Judge(r.Seen.Records())) {
				t.Error(f)
			}
			if missing := oracle.Missing(r.Seen.Records()); len(missing) > 0 {
				t.Errorf("there are no records of %v: oracles said nothing", missing)
			}
			if r.Coverage["kernels compared"] == 0 || r.Coverage["witness has a gap"] > 0 {
				t.Errorf("what is compared with kernels and logs is not there: %v", r.Coverage)
			}
			t.Log(r.Simulated, r.Real, r.Coverage)
			barriers += r.Coverage["barrier kernels"]
			ran++
		})
	}
	// A kernel is compared at a barrier only if nothing was written meanwhile, which in a history of
	// 20 s may happen at each of them.
	if ran > 2 && barriers == 0 {
		t.Errorf("no kernel was compared at a barrier, in %d histories", ran)
	}
}

// TestSeeds runs the histories of RUTTER_SEEDS seeds from RUTTER_FROM on.
func TestSeeds(t *testing.T) {
	count, _ := strconv.Atoi(os.Getenv("RUTTER_SEEDS"))
	from, _ := strconv.ParseUint(os.Getenv("RUTTER_FROM"), 10, 64)
	d := disk.New(t)
	total := map[string]int{}
	for seed := from; seed < from+uint64(count); seed++ {
		h := history.Generate(seed, history.Usual())
		o := world.Options{Patience: time.Minute, Disk: d}
		if os.Getenv("RUTTER_SIMULATE_LOG") != "" {
			o.Log = os.Stdout
		}
		r := world.Run(t, h, o)
		t.Logf("seed %d: %v in %v, %d faults, %d failures", seed, r.Simulated, r.Real, len(h.Faults), len(r.Failures))
		for _, f := range slices.Concat(r.Failures, oracle.Judge(r.Seen.Records())) {
			t.Errorf("seed %d: %s", seed, f)
		}
		for k, n := range r.Coverage {
			total[k] += n
		}
	}
	t.Log(total)
}
