package projections

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rutter/log"
)

// SettingNetworkImmutable, if true, has vlan_id and nic_tag of networks, and the
// gateway of fabric networks, refuse every update, as NAPI does (spec/napi.md
// section 3.4). It is false unless it is set.
const SettingNetworkImmutable = "napi.network_immutable"

// settings has the values that each setting may have; the first is the default.
var settings = map[string][]string{
	SettingNetworkImmutable: {"false", "true"},
}

// Setting returns the value of a setting, or its default; "" if there is none of
// that name.
func (s *State) Setting(name string) string {
	if r := s.row(log.KindSetting, name); r != nil {
		return r.obj.(*log.Setting).Value
	}
	return defaultOf(name)
}

func defaultOf(name string) string {
	if name == SettingCNMaxVMs {
		return strconv.Itoa(MaxVMsOfCN)
	}
	if values := settings[name]; values != nil {
		return values[0]
	}
	return ""
}

// setting is State.Setting by now.
func (d *draft) setting(name string) string {
	if r, ok := d.find(log.KindSetting, name); ok {
		return r.Object.(*log.Setting).Value
	}
	return defaultOf(name)
}

func (d *draft) checkSetting(s *log.Setting) {
	contained := d.base.Feature() >= log.FeatureContained
	switch {
	case !contained:
	case s.Name == SettingClusterTime:
		d.checkClusterTime(s)
		return
	case s.Name == SettingCNMaxVMs:
		if n, err := strconv.Atoi(s.Value); err != nil || n < 1 || n > mostCNVMs || strconv.Itoa(n) != s.Value {
			d.bad("value", "that is no value of "+s.Name, fmt.Sprintf("send a number from 1 to %d", mostCNVMs))
		}
		return
	}
	values, known := settings[s.Name]
	if !known {
		names := make([]string, 0, len(settings)+1)
		if contained {
			names = append(names, SettingCNMaxVMs, SettingClusterTime)
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
