package projections

import "rutter/log"

// SettingClusterTime is the setting by which an operator sets the log's time, back
// or forward: its event, and all after it, have the time that its value names. It is
// the one exception to the rule that time never goes back along the log (SAFETY T1),
// and stands in a change of its own. From log.FeatureContained on.
const SettingClusterTime = "cluster.time"

// ForcedTime, at the end of SettingClusterTime's value, says that the time was meant
// although the servers' clocks differ from it.
const ForcedTime = " forced"

// Mends reports whether an event sets the log's time.
func Mends(e *log.Event) bool {
	return e.Kind == log.KindSetting && e.Action != log.Delete && e.ID == SettingClusterTime
}

// SettingNAPIStrict, if "true", makes NAPI's surface refuse writes that name parameters
// which NAPI does not have. It is false unless it is set: NAPI ignores them. From
// log.FeatureTriton on.
const SettingNAPIStrict = "napi.strict"
