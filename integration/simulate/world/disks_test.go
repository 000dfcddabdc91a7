package world_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"rutter/integration/simulate/disk"
	"rutter/integration/simulate/history"
	"rutter/integration/simulate/oracle"
	"rutter/integration/simulate/seen"
)

// TestDisksOfAgents: agents whose disks hang, are full, are slow or lose what was not synced go on,
// and what they say of their kernels is judged while the trouble lasts.
func TestDisksOfAgents(t *testing.T) {
	const last = oracle.Carried + 10*s
	h := history.History{Seed: 5, Servers: 3, Agents: 5, Clients: 2, Duration: last + 10*s, Faults: []history.Fault{
		{At: 3 * s, For: last, Kind: history.Hang, On: "cn1"},
		{At: 3 * s, For: last, Kind: history.Full, On: "cn2"},
		{At: 3 * s, For: last, Kind: history.SlowSync, On: "cn3", N: 300},
		{At: 5 * s, For: s, Kind: history.Power, On: "cn4", N: 3, Seed: 1},
		{At: 20 * s, For: s, Kind: history.Power, On: "cn4", N: 40, Seed: 2},
		{At: 25 * s, For: s, Kind: history.Rot, On: "cn4", N: 400, Seed: 3},
	}}
	r := judged(t, h, disk.New(t))
	records := slices.Clone(r.Seen.Records())
	// The disk has its trouble: what waits for it is seen to be late, if the agents are said to have
	// programmed nothing since it began.
	var before time.Duration
	for i, record := range records {
		if e, is := record.Event.(seen.Fault); is && !e.Over && before == 0 {
			before = record.At
		}
		if e, is := record.Event.(seen.Agent); is && before > 0 {
			e.Programmed.Seq = min(e.Programmed.Seq, 1)
			records[i].Event = e
		}
	}
	found := oracle.Judge(records)
	for _, name := range []string{"cn1", "cn2", "cn3"} {
		if !slices.ContainsFunc(found, func(line string) bool { return strings.HasPrefix(line, "cache: "+name) }) {
			t.Errorf("the trouble of %s is not judged: %q", name, found)
		}
	}
	if r.Coverage["skipped full"]+r.Coverage["skipped hang"]+r.Coverage["skipped power"] > 0 || r.Coverage["cache_rebuilt"] == 0 {
		t.Errorf("the faults did not happen: %v", r.Coverage)
	}
}

// TestAgentsBeginAnew: agents end and begin, while what one server says comes late to the others, and
// few write. A barrier that waits for no newer sessions is done here by what the programs of before
// had programmed (mutant barrier-asks-no-newer).
func TestAgentsBeginAnew(t *testing.T) {
	h := history.History{Seed: 1, Servers: 3, Agents: 5, Clients: 1, Duration: 30 * s, Faults: []history.Fault{
		{At: s, Kind: history.Transfer, On: "s2"},
		{At: 2 * s, For: 26 * s, Kind: history.Slow, On: "s1", To: "s2", N: 700},
		{At: 2 * s, For: 26 * s, Kind: history.Slow, On: "s1", To: "s3", N: 700},
	}}
	for at := 3 * s; at < 25*s; at += 2900 * time.Millisecond {
		for i, on := range []string{"cn1", "cn4"} { // they ask s1 first
			h.Faults = append(h.Faults, history.Fault{At: at + time.Duration(i)*900*time.Millisecond, For: 60 * time.Millisecond, Kind: history.Kill, On: on})
		}
	}
	r := judged(t, h, nil)
	if r.Coverage["fault kill"] < 10 || r.Coverage["barrier done=true"] == 0 {
		t.Errorf("agents did not begin anew, or no barrier was done: %v", r.Coverage)
	}
}
