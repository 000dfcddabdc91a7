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
	o := world.Options{Patience: time.Minute, Disk: d}
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
	p.TLS, p.Themes = 100, append(history.Themes(), history.Trust, history.Trust)
	for seed := from; seed < from+uint64(count); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { judged(t, history.Generate(seed, p), d) })
	}
}
