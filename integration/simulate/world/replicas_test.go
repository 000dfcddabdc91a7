package world_test

import (
	"testing"

	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/disk"
	"rutter/integration/simulate/history"
)

// TestReplicas: servers without a vote feed compute nodes and answer reads; these leave one that
// cannot hear the others, and both may end; one gets a vote for a while.
func TestReplicas(t *testing.T) {
	d := disk.New(t)
	for name, c := range map[string]struct {
		tls     bool
		faults  []history.Fault
		reached []string
	}{
		"lagging": {false, []history.Fault{
			{At: 3 * s, For: 14 * s, Kind: history.Cut, On: "s1", To: "n1"},
			{At: 3 * s, For: 14 * s, Kind: history.Cut, On: "s2", To: "n1"},
			{At: 3 * s, For: 14 * s, Kind: history.Cut, On: "s3", To: "n1"},
			{At: 3 * s, For: 14 * s, Kind: history.Cut, On: "s1", To: "n2"},
			{At: 3 * s, For: 14 * s, Kind: history.Cut, On: "s2", To: "n2"},
			{At: 3 * s, For: 14 * s, Kind: history.Cut, On: "s3", To: "n2"},
		}, []string{coverage.ReplicaFeeds, coverage.ReplicaLagged, coverage.ReplicaLeft}},
		"down": {true, []history.Fault{
			{At: 3 * s, For: 9 * s, Kind: history.Kill, On: "n1"},
			{At: 3 * s, For: 9 * s, Kind: history.Lose, On: "n2"},
		}, []string{coverage.ReplicaFeeds}},
		"promoted": {false, []history.Fault{
			{At: 2 * s, For: 10 * s, Kind: history.Promote, On: "n1"},
			{At: 4 * s, For: 2 * s, Kind: history.Kill, On: "s1"},
			{At: 5 * s, For: 8 * s, Kind: history.Power, On: "n2", N: 1},
		}, []string{coverage.ReplicaPromoted, coverage.ReplicaAgain}},
		"restored": {false, []history.Fault{
			{At: 2 * s, Kind: history.Snapshot, On: "n1"},
			{At: 5 * s, Kind: history.Restore, On: "s1"},
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := history.History{Seed: 5, Servers: 3, Replicas: 2, Agents: 5, Clients: 2, Duration: 20 * s, TLS: c.tls, Faults: c.faults}
			if err := h.Validate(); err != nil {
				t.Fatal(err)
			}
			r := judged(t, h, d)
			for _, state := range c.reached {
				if r.Coverage[state] == 0 {
					t.Errorf("it never came to %s", state)
				}
			}
		})
	}
}
