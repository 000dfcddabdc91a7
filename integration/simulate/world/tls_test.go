package world_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/disk"
	"rutter/integration/simulate/history"
	"rutter/integration/simulate/oracle"
	"rutter/integration/simulate/world"
)

// trusted are histories with certificates.
var trusted = map[string][]history.Fault{
	"none":   nil,
	"rotate": {{At: 3 * s, Kind: history.Rotate}},
	"lie":    {{At: 3 * s, Kind: history.Lie, On: "cn1"}, {At: 12 * s, Kind: history.Lie, On: "cn2"}},
	"revoke": {{At: 3 * s, For: 4 * s, Kind: history.Revoke, On: "cn1"}, {At: 8 * s, For: 4 * s, Kind: history.Revoke, On: "s1"}},
}

// TestTLS: certificates are renewed, revoked and replaced, and the authorities rotated.
func TestTLS(t *testing.T) {
	d := disk.New(t)
	for name, list := range trusted {
		t.Run(name, func(t *testing.T) {
			h := history.History{Seed: 3, Servers: 3, Agents: 5, Clients: 2, Duration: 20 * s, TLS: true, Faults: list}
			if seed, err := strconv.ParseUint(os.Getenv("RUTTER_SEED"), 10, 64); err == nil {
				h.Seed = seed
			}
			judged(t, h, d)
		})
	}
}

// TestSpoil: whatever file of a folder of certificates is damaged, who has it goes on with what is in
// memory, and an operator mends what no renewal does; a program that starts then says that it cannot.
func TestSpoil(t *testing.T) {
	d := disk.New(t)
	for n := range int64(history.Spoils) {
		for _, on := range []string{"cn1", "s1"} {
			if on == "cn1" && n >= 8 {
				continue // servers only
			}
			t.Run(fmt.Sprintf("%s %d", on, n+1), func(t *testing.T) {
				h := history.History{Seed: 1 + uint64(n), Servers: 3, Agents: 5, Clients: 2, Duration: 55 * s, TLS: true, Faults: []history.Fault{
					{At: 2 * s, For: 25 * s, Kind: history.Spoil, On: on, N: n + 1},
					{At: 35 * s, For: 12 * s, Kind: history.Spoil, On: on, N: n + 1},
					{At: 38 * s, For: s, Kind: history.Kill, On: on},
				}}
				if r := judged(t, h, d); r.Coverage[coverage.FolderSpoiled] == 0 {
					t.Error("no folder was damaged")
				}
			})
		}
	}
}

// TestLieWithoutTLS: what a node says of the future is not believed.
func TestLieWithoutTLS(t *testing.T) {
	h := history.History{Seed: 3, Servers: 3, Agents: 5, Clients: 2, Duration: 10 * s, Faults: []history.Fault{{At: 3 * s, Kind: history.Lie, On: "cn1"}}}
	if r := judged(t, h, nil); r.Coverage[coverage.LieRefused] == 0 {
		t.Error("no lie was refused")
	}
}

// judged runs a history, and returns what it came to.
func judged(t *testing.T, h history.History, d *disk.Disk) world.Report {
	t.Helper()
	o := world.Options{Patience: 3 * time.Minute, Disk: d}
	if testing.Verbose() && os.Getenv("RUTTER_SIMULATE_LOG") != "" {
		o.Log = os.Stdout
	}
	r := world.Run(t, h, o)
	for _, f := range slices.Concat(r.Failures, oracle.Judge(r.Seen.Records())) {
		t.Error(f)
	}
	t.Log(fmt.Sprint(r.Simulated, r.Real, r.Coverage))
	return r
}

// TestTLSSeeds runs the histories of RUTTER_SEEDS seeds from RUTTER_FROM on, with certificates and
// their faults.
func TestTLSSeeds(t *testing.T) {
	count, _ := strconv.Atoi(os.Getenv("RUTTER_SEEDS"))
	from, _ := strconv.ParseUint(os.Getenv("RUTTER_FROM"), 10, 64)
	d := disk.New(t)
	p := history.Usual()
	p.TLS, p.Themes = 100, []history.Theme{history.Trust, history.Trust, history.Nodes, history.Crashes, history.Partitions, history.Backups, history.Away}
	for seed := from; seed < from+uint64(count); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { judged(t, history.Generate(seed, p), d) })
	}
}

// TestWideSeeds runs wide histories, of up to five servers and 50 agents, of RUTTER_SEEDS seeds
// from RUTTER_FROM on.
func TestWideSeeds(t *testing.T) {
	count, _ := strconv.Atoi(os.Getenv("RUTTER_SEEDS"))
	from, _ := strconv.ParseUint(os.Getenv("RUTTER_FROM"), 10, 64)
	d := disk.New(t)
	for seed := from; seed < from+uint64(count); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := history.Generate(seed, history.Wide().Lasting(20*s))
			t.Logf("%d servers, %d agents, TLS %v", h.Servers, h.Agents, h.TLS)
			judged(t, h, d)
		})
	}
}
