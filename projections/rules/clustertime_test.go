package rules

import (
	"slices"
	"strings"
	"testing"

	"rutter/log"
	"rutter/projections"
)

const (
	nowTime  log.Time = 1_800_000_000_000_000_000
	yearTime          = nowTime + 365*24*3600*1_000_000_000
)

// timeOp is an operation on the setting of the log's time.
func timeOp(action log.Action, value string) log.Op {
	op := log.Op{Action: action, Kind: log.KindSetting, ID: projections.SettingClusterTime, Set: []string{"value"}, Object: &log.Setting{Value: value}}
	switch action {
	case log.Create:
		op.ID, op.Set, op.Object = "", []string{"name", "value"}, &log.Setting{Name: projections.SettingClusterTime, Value: value}
	case log.Delete:
		op.Set, op.Object = nil, nil
	}
	return op
}

// timeChange is a change of an operator, stamped.
func timeChange(id byte, stamp log.Time, ops ...log.Op) *log.Change {
	return &log.Change{ID: log.UUID{6: 0x70, 8: 0x80, 15: id}, Time: stamp, Actor: "test", Ops: ops}
}

// The one exception to "time never goes back": the event of the setting, and what
// comes after it, have the time that it names, on every server and in every replay.
func TestTimeIsSetByEntry(t *testing.T) {
	t.Parallel()
	s, replayed := projections.NewState(), projections.NewState()
	seq := log.Seq(0)
	apply := func(c *log.Change) []*log.Event {
		t.Helper()
		events, result := Decide(s, c)
		if result.Refusal != nil {
			t.Fatalf("refused: %v", result.Refusal)
		}
		for _, e := range events {
			seq++
			for _, state := range []*projections.State{s, replayed} {
				if _, err := state.Apply(seq, e); err != nil {
					t.Fatal(err)
				}
				if state.Time() != e.Time {
					t.Fatalf("after an event of %s the state is of %s", e.Time, state.Time())
				}
			}
		}
		return events
	}
	tagOp := func(name string) log.Op {
		return log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: name}}
	}
	apply(timeChange(1, yearTime, tagOp("a")))
	if e := apply(timeChange(2, nowTime, tagOp("b"))); e[0].Time != yearTime {
		t.Fatalf("a stamp from before takes time back to %s", e[0].Time)
	}
	if e := apply(timeChange(3, nowTime, timeOp(log.Create, nowTime.Std().Format("2006-01-02T15:04:05.999999999Z07:00")))); e[0].Time != nowTime {
		t.Fatalf("time is set to %s, want %s", e[0].Time, nowTime)
	}
	if e := apply(timeChange(4, nowTime+5, tagOp("c"))); e[0].Time != nowTime+5 {
		t.Fatalf("behind it the time is %s", e[0].Time)
	}
	later := nowTime + 3600*1_000_000_000
	if e := apply(timeChange(5, nowTime+6, timeOp(log.Update, later.Std().Format("2006-01-02T15:04:05Z07:00")+projections.ForcedTime))); e[0].Time != later {
		t.Fatalf("forward it is set to %s", e[0].Time)
	}
}

// What is refused moves no time, and no other change does what only this one may.
func TestTimeIsSetAlone(t *testing.T) {
	t.Parallel()
	text := nowTime.Std().Format("2006-01-02T15:04:05Z07:00")
	other := timeOp(log.Update, text)
	other.ID = SettingNetworkImmutable
	other.Object = &log.Setting{Name: projections.SettingClusterTime, Value: text}
	strange := timeChange(9, nowTime, timeOp(log.Create, text))
	strange.By = log.Author{Role: log.RoleReader}
	for name, c := range map[string]*log.Change{
		"no time":      timeChange(1, nowTime, timeOp(log.Create, "now")),
		"too far":      timeChange(2, nowTime, timeOp(log.Create, "2207-01-01T00:00:00Z")),
		"not there":    timeChange(3, nowTime, timeOp(log.Update, text)),
		"with another": timeChange(4, nowTime, timeOp(log.Create, text), log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: "x"}}),
		"not allowed":  strange,
	} {
		s := projections.NewState()
		s.SetTime(yearTime)
		if events, result := Decide(s, c); result.Refusal == nil {
			t.Errorf("%s: accepted, %v", name, events)
		}
	}
	s := projections.NewState()
	s.SetTime(yearTime)
	if _, _, ok := MendOf(s, timeChange(1, nowTime, other)); ok {
		t.Error("an update of another setting sets the time")
	}
	events, _ := Decide(s, timeChange(1, nowTime, timeOp(log.Create, text)))
	if _, err := s.Apply(1, events[0]); err != nil {
		t.Fatal(err)
	}
	if _, result := Decide(s, timeChange(2, nowTime, timeOp(log.Delete, ""))); result.Refusal == nil || result.Refusal.Code != log.CodeInUse {
		t.Errorf("the setting is deleted: %+v", result)
	}
}

// Before the feature version that brought it, there is no such setting, and the
// refusal is what servers of before make, byte for byte.
func TestTimeIsNotSetBefore(t *testing.T) {
	t.Parallel()
	s := projections.NewState()
	s.SetFeature(log.FeatureFirst)
	s.SetTime(yearTime)
	c := timeChange(1, nowTime, timeOp(log.Create, nowTime.String()))
	if _, _, ok := MendOf(s, c); ok {
		t.Error("the time is set by an old feature version")
	}
	_, result := Decide(s, c)
	want := `InvalidParameters: Invalid parameters; name: there is no setting "cluster.time" (use one of: napi.network_immutable)`
	if result.Refusal == nil || result.Refusal.Error() != want {
		t.Errorf("%v, want %s", result.Refusal, want)
	}
	s.SetFeature(log.FeatureContained)
	_, result = Decide(s, timeChange(1, nowTime, log.Op{Action: log.Create, Kind: log.KindSetting, Set: []string{"name", "value"}, Object: &log.Setting{Name: "x", Value: "y"}}))
	if result.Refusal == nil || !slices.ContainsFunc(result.Refusal.Errors, func(e log.FieldError) bool { return strings.Contains(e.Remedy, projections.SettingClusterTime) }) {
		t.Errorf("the names of the settings: %v", result.Refusal)
	}
}
