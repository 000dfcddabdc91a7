package projections

import (
	"fmt"
	"strings"

	"rutter/log"
)

// SettingClusterTime is the setting by which an operator sets the log's time, back
// or forward: its event, and all after it, have the time that its value names. It is
// the one exception to the rule that time never goes back along the log (SAFETY T1),
// and stands in a change of its own. From log.FeatureContained on.
const SettingClusterTime = "cluster.time"

// ForcedTime, at the end of SettingClusterTime's value, says that the time was meant
// although the servers' clocks differ from it.
const ForcedTime = " forced"

// Times that the log may be set to, in ns since 1970: any of which a log of ours can
// be, and with room to the end of what log.Time can hold.
const (
	earliestTime log.Time = 946_684_800_000_000_000   // 2000-01-01
	latestTime   log.Time = 7_258_118_400_000_000_000 // 2200-01-01
)

// parseClusterTime reads SettingClusterTime's value.
func parseClusterTime(value string) (to log.Time, forced bool, err error) {
	text, forced := strings.CutSuffix(value, ForcedTime)
	if to, err = log.ParseTime(text); err == nil && (to < earliestTime || to >= latestTime) {
		err = fmt.Errorf("it must be from the year 2000 to 2199")
	}
	return to, forced, err
}

// MendOf returns the time that a change asks the log to be set to, and whether that
// was forced; ok is false of all other changes, and of all while the feature version
// knows no such change. Whether it is accepted Decide says.
func (s *State) MendOf(c *log.Change) (to log.Time, forced, ok bool) {
	if s.feature < log.FeatureContained || len(c.Ops) != 1 || c.Ops[0].Kind != log.KindSetting || c.Ops[0].Action == log.Delete {
		return 0, false, false
	}
	op := &c.Ops[0]
	setting, is := op.Object.(*log.Setting)
	switch {
	case !is || setting == nil,
		op.Action == log.Create && setting.Name != SettingClusterTime,
		op.Action == log.Update && (op.ID != SettingClusterTime || !given(op, "value")):
		return 0, false, false
	}
	to, forced, err := parseClusterTime(setting.Value)
	return to, forced, err == nil
}

// Mends reports whether an event sets the log's time.
func Mends(e *log.Event) bool {
	return e.Kind == log.KindSetting && e.Action != log.Delete && e.ID == SettingClusterTime
}

// checkClusterTime checks the setting's value, and that nothing goes with it: what
// else a change does would have to be of the time before or of that after.
func (d *draft) checkClusterTime(s *log.Setting) {
	if _, _, err := parseClusterTime(s.Value); err != nil {
		d.bad("value", "is no time that the log can be set to", "send RFC 3339, as in 2026-11-21T09:00:00Z, of the years 2000 to 2199")
	}
	if len(d.change.Ops) != 1 {
		d.bad("name", "the log's time is set by a change of its own", "send the other operations in another change")
	}
}

// deleteSetting refuses to forget that time was set: the entries before and after
// are in this order all the same.
func (d *draft) deleteSetting(s *log.Setting) {
	if s.Name == SettingClusterTime && d.base.feature >= log.FeatureContained {
		d.refuse(log.CodeInUse, "the log's time stays set", log.FieldError{
			Field: "name", Code: log.ElementInvalid, Message: "it says where times go back along the log",
			Remedy: "set another time with rutter cluster time set",
		})
	}
}
