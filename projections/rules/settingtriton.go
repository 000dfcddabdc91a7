package rules

import (
	"encoding/json"
	"strings"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/designation"
)

// tritonSettings are those that the surfaces of CNAPI and NAPI read, from log.FeatureTriton
// on.
var tritonSettings = []string{
	designation.SettingAllocation, designation.SettingBootDefault, designation.SettingPlatforms, projections.SettingNAPIStrict,
}

// maxPlatforms bounds the platforms that a setting names.
const maxPlatforms = 256

// checkTritonSetting checks a setting of CNAPI's surface; it returns false for others.
func checkTritonSetting(d *draft, s *log.Setting) bool {
	switch s.Name {
	case designation.SettingAllocation:
		if _, err := designation.ParseDefaults(s.Value); err != nil {
			d.bad("value", d.show(err.Error()), "send NAME=VALUE with commas between, as in filter_headnode=false,overprovision_ratio_cpu=2")
		}
	case designation.SettingBootDefault:
		d.checkJSON("value", s.Value, 4*projections.MaxFieldJSON, '{')
	case designation.SettingPlatforms:
		d.checkJSON("value", s.Value, 4*projections.MaxFieldJSON, '{')
		var platforms map[string]struct {
			OS string `json:"os"`
		}
		if err := json.Unmarshal([]byte(s.Value), &platforms); err != nil || len(platforms) > maxPlatforms || strings.TrimSpace(s.Value) == "" {
			d.bad("value", "that is no list of platforms", `send a JSON object of at most 256, as in {"20261101T000000Z": {"os": "smartos"}}`)
		}
	default:
		return false
	}
	return true
}
