package coverage

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
	"rutter/log"
)

func TestStatesHaveNames(t *testing.T) {
	names := map[string]bool{}
	for _, s := range States {
		if names[s.Name] || s.Name == "" || s.What == "" {
			t.Errorf("state %q: it is there twice, or has no words", s.Name)
		}
		names[s.Name] = true
	}
}

// Tables of several processes together are the table of one.
func TestMerge(t *testing.T) {
	histories := []map[string]int{{LeaderChange: 3}, {LeaderChange: 1, Rebuilt: 2}, {}, {Rebuilt: 0, "writes": 1}}
	var one, a, b Table
	for i, counts := range histories {
		one.Add(counts)
		if i%2 == 0 {
			a.Add(counts)
		} else {
			b.Add(counts)
		}
	}
	text, err := json.Marshal(b) // as a process hands it over
	if err != nil {
		t.Fatal(err)
	}
	var got Table
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	a.Merge(got)
	if !reflect.DeepEqual(a, one) {
		t.Errorf("%v, want %v", a, one)
	}
	if one.Histories != 4 || one.Times[LeaderChange] != 4 || one.In[LeaderChange] != 2 || one.In[Rebuilt] != 1 || one.Covered() != 2 {
		t.Errorf("%+v covers %d", one, one.Covered())
	}
	if got := one.Others(); !reflect.DeepEqual(got, []string{"writes"}) {
		t.Errorf("others: %q", got)
	}
	for _, says := range []string{"leader_change", "4      1.00   50.0%", "of 4 histories", "writes"} {
		if !strings.Contains(one.String(), says) {
			t.Errorf("the table lacks %q:\n%v", says, &one)
		}
	}
}

// A goal that a night never came to is named, and a short run is not blamed.
func TestMissing(t *testing.T) {
	all := map[string]int{}
	for _, s := range States {
		if s.Name != EpochChange && s.Name != Rebuilt {
			all[s.Name] = 1
		}
	}
	var night Table
	for range Enough - 1 {
		night.Add(all)
	}
	if missing := night.Missing(); len(missing) > 0 {
		t.Errorf("%d histories miss %v", night.Histories, missing)
	}
	night.Add(all)
	if missing := night.Missing(); len(missing) != 1 || missing[0].Name != EpochChange { // a hold is no goal
		t.Errorf("missing: %v", missing)
	}
	if !strings.Contains(night.String(), "0.0% ! the cluster was restored") {
		t.Errorf("the table does not mark it:\n%v", &night)
	}
}

// Each state that Count knows is counted from a log in which it occurs.
func TestCount(t *testing.T) {
	change := log.Change{ID: log.UUID{1}}
	kill := history.Fault{Kind: history.Kill, On: "s1", For: 1}
	power := history.Fault{Kind: history.Power, On: "s2", For: 1}
	cut := history.Fault{Kind: history.Cut, On: "s3", For: 1}
	events := []struct {
		who   string
		event seen.Event
	}{
		{"s1", seen.Process{State: "started"}},
		{"s2", seen.Process{State: "started"}},
		{"cn1", seen.Process{State: "started"}},
		{"s1", seen.Server{Term: 2, Leads: true}},
		{"c1", seen.WriteBegun{Change: change}},
		{"s2", seen.Server{Term: 3, Leads: true, Ready: "behind", Lag: 4}}, // two leaders, a change within a write
		{"s1", seen.Server{Term: 3}},
		{"s2", seen.Server{Term: 3}}, // none leads
		{"c1", seen.Write{Change: change, Outcome: seen.Unknown}},
		{"c1", seen.Write{Outcome: seen.Accepted, Result: log.Result{Last: 9}}},
		{"c1", seen.Write{Change: change, Outcome: seen.Accepted, Result: log.Result{Last: 7}}},
		{"c1", seen.Write{Outcome: seen.Refused}},
		{"c1", seen.Write{Outcome: seen.NotTaken}},
		{"c1", seen.Read{Err: "no answer"}},
		{"c1", seen.StreamBegun{Stream: "a"}},
		{"c1", seen.StreamEnded{Stream: "a", Code: "CursorCompacted"}},
		{"c1", seen.StreamBegun{Stream: "a"}},
		{"c1", seen.StreamEnded{Stream: "a", Code: "CursorOfOtherLog"}},
		{"cn1", seen.Agent{Head: log.Cursor{Seq: 5}}},
		{"c1", seen.Barrier{Done: true}},
		{"c1", seen.Barrier{Missing: []string{"cn1"}}},
		{"s1", seen.Fault{Fault: kill}},
		{"s2", seen.Fault{Fault: power}},
		{"s3", seen.Fault{Fault: cut}}, // three together
		{"s3", seen.Fault{Fault: cut, Over: true}},
		{"s1", seen.Process{State: "killed"}},
		{"s2", seen.Process{State: "killed"}}, // all are down
		{"s1", seen.Process{State: "started"}},
		{"s2", seen.Process{State: "started"}},
		{"cn1", seen.Process{State: "stopped"}},
		{"cn1", seen.Process{State: "started"}},
		{"", seen.Restored{}},
	}
	var records []seen.Record
	for i, e := range events {
		records = append(records, seen.Record{N: i, At: time.Duration(i), Who: e.who, Event: e.event})
	}
	got := Count(records)
	want := map[string]int{
		LeaderChange: 1, ElectionInWrites: 1, TwoLeaders: 1, NoLeader: 1, Restart: 2, ColdStart: 1, AllDown: 1, AgentRestart: 1, EpochChange: 1,
		WriteUnknown: 1, Deduped: 1, Refusal: 1, NotTaken: 1, StreamResumed: 1, StreamTooOld: 1, StreamOtherLog: 1, BarrierDone: 1, BarrierTimeout: 1,
		ReadFailed: 1, NotReady: 1, Behind: 1, AgentHalf: 1, AgentBehind: 1, PowerCut: 1, FaultsTogether: 1,
	}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s: %d, want %d", name, got[name], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("counted %v", got)
	}
	if got := Count(nil); len(got) != 0 {
		t.Errorf("an empty log has %v", got)
	}
}
