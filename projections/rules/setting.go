package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rutter/log"
	"rutter/projections"
)

var settingRules = hooks[*log.Setting]{
	check:  func(d *draft, _, s *log.Setting, _ *log.Op) { checkSetting(d, s) },
	remove: removeSetting,
}

// mostCNVMs is the highest that SettingCNMaxVMs may be.
const mostCNVMs = 1_000_000

// SettingCNMaxVMs is how many VMs a compute node may have by its own word; the
// other limits of what it owns follow from it. What operators place is their word.
const SettingCNMaxVMs = "cn.max_vms"

// MendOf returns the time that a change asks the log to be set to, and whether that
// was forced; ok is false of all other changes, and of all while the feature version
// of s knows no such change. Whether it is accepted Decide says.
func MendOf(s *projections.State, c *log.Change) (to log.Time, forced, ok bool) {
	if s.Feature() < log.FeatureContained || len(c.Ops) != 1 || c.Ops[0].Kind != log.KindSetting || c.Ops[0].Action == log.Delete {
		return 0, false, false
	}
	op := &c.Ops[0]
	setting, is := op.Object.(*log.Setting)
	switch {
	case !is || setting == nil,
		op.Action == log.Create && setting.Name != projections.SettingClusterTime,
		op.Action == log.Update && (op.ID != projections.SettingClusterTime || !given(op, "value")):
		return 0, false, false
	}
	to, forced, err := parseClusterTime(setting.Value)
	return to, forced, err == nil
}

// Times that the log may be set to, in ns since 1970: any of which a log of ours can
// be, and with room to the end of what log.Time can hold.
const (
	earliestTime log.Time = 946_684_800_000_000_000   // 2000-01-01
	latestTime   log.Time = 7_258_118_400_000_000_000 // 2200-01-01
)

// SettingNetworkImmutable, if true, makes vlan_id and nic_tag of networks, and the
// gateway of fabric networks, refuse every update, as NAPI does (spec/napi.md
// section 3.4). It is false unless it is set.
const SettingNetworkImmutable = "napi.network_immutable"

// SettingFabricSelfProvision is which compute nodes may make NICs by themselves on a
// fabric network whose self_provision is not set: none, unless it is set.
const SettingFabricSelfProvision = "fabric.self_provision"

// SettingFabricMTU is what happens to a fabric network whose MTU the underlay of a compute
// node does not carry: one of log.FabricMTUs. The default only warns, because a cloud
// that runs before the nodes report their MTUs must take the writes that it took.
const SettingFabricMTU = "fabric.mtu"

// settings has the values that each setting may have; the first is the default.
var settings = map[string][]string{
	SettingNetworkImmutable: {"false", "true"},
}

func defaultOf(name string) string {
	if name == SettingCNMaxVMs {
		return strconv.Itoa(projections.MaxVMsOfCN)
	}
	switch name {
	case SettingFabricSelfProvision:
		return log.SelfProvisionOff
	case SettingFabricMTU:
		return log.FabricMTUWarn
	}
	if values := settings[name]; values != nil {
		return values[0]
	}
	return ""
}

func checkSetting(d *draft, s *log.Setting) {
	contained := d.State().Feature() >= log.FeatureContained
	switch {
	case !contained:
	case s.Name == projections.SettingClusterTime:
		checkClusterTime(d, s)
		return
	case s.Name == SettingCNMaxVMs:
		if n, err := strconv.Atoi(s.Value); err != nil || n < 1 || n > mostCNVMs || strconv.Itoa(n) != s.Value {
			d.bad("value", "that is no value of "+s.Name, fmt.Sprintf("send a number from 1 to %d", mostCNVMs))
		}
		return
	}
	if triton(d) && checkTritonSetting(d, s) {
		return
	}
	values, known := settings[s.Name]
	if triton(d) && s.Name == projections.SettingNAPIStrict {
		values, known = []string{"false", "true"}, true
	}
	if d.confined() && s.Name == SettingFabricSelfProvision {
		values, known = log.SelfProvisions, true
	}
	if perNode(d) && s.Name == SettingFabricMTU {
		values, known = log.FabricMTUs, true
	}
	if !known {
		names := make([]string, 0, len(settings)+1)
		if contained {
			names = append(names, SettingCNMaxVMs, projections.SettingClusterTime)
		}
		if d.confined() {
			names = append(names, SettingFabricSelfProvision)
		}
		if perNode(d) {
			names = append(names, SettingFabricMTU)
		}
		if triton(d) {
			names = append(names, tritonSettings...)
			names = append(names, projections.SettingNAPIStrict)
		}
		for name := range settings {
			names = append(names, name)
		}
		slices.Sort(names)
		d.bad("name", fmt.Sprintf("there is no setting \"%s\"", d.show(s.Name)), "use one of: "+strings.Join(names, ", "))
		return
	}
	if !slices.Contains(values, s.Value) {
		d.bad("value", fmt.Sprintf("\"%s\" is no value of %s", d.show(s.Value), s.Name), "send one of: "+strings.Join(values, ", "))
	}
}

// parseClusterTime reads projections.SettingClusterTime's value.
func parseClusterTime(value string) (to log.Time, forced bool, err error) {
	text, forced := strings.CutSuffix(value, projections.ForcedTime)
	if to, err = log.ParseTime(text); err == nil && (to < earliestTime || to >= latestTime) {
		err = fmt.Errorf("it must be from the year 2000 to 2199")
	}
	return to, forced, err
}

// checkClusterTime checks the setting's value, and that nothing goes with it: what
// else a change does would have to be of the time before or of that after.
func checkClusterTime(d *draft, s *log.Setting) {
	if _, _, err := parseClusterTime(s.Value); err != nil {
		d.bad("value", "is no time that the log can be set to", "send RFC 3339, as in 2026-11-21T09:00:00Z, of the years 2000 to 2199")
	}
	if len(d.change.Ops) != 1 {
		d.bad("name", "the log's time is set by a change of its own", "send the other operations in another change")
	}
}

// removeSetting refuses to forget that time was set: the entries before and after
// are in this order all the same.
func removeSetting(d *draft, s *log.Setting) {
	if s.Name == projections.SettingClusterTime && d.State().Feature() >= log.FeatureContained {
		d.refuse(log.CodeInUse, "the log's time stays set", log.FieldError{
			Field: "name", Code: log.ElementInvalid, Message: "it says where times go back along the log",
			Remedy: "set another time with rutter cluster time set",
		})
	}
}

// cnMaxVMs is the setting by now.
func cnMaxVMs(d *draft) int {
	n, err := strconv.Atoi(d.setting(SettingCNMaxVMs))
	if err != nil {
		return projections.MaxVMsOfCN
	}
	return n
}

// setting is State.Setting by now.
func (d *draft) setting(name string) string {
	if r, ok := d.ByName(log.KindSetting, name); ok {
		return r.Object.(*log.Setting).Value
	}
	return defaultOf(name)
}
