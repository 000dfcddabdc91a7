package rules

import (
	"encoding/json"
	"strings"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/designation"
)

// tritonSettings are those that CNAPI's surface reads, from log.FeatureTriton on.
var tritonSettings = []string{designation.SettingAllocation, designation.SettingBootDefault, designation.SettingPlatforms}

// maxPlatforms bounds the platforms that a setting names.
const maxPlatforms = 256

// ofBootRecords reports whether an operation writes the boot record of servers that have
// none of their own. It is a record as each server has one, which programs without a
// certificate write too, and says nothing of who may do what.
func ofBootRecords(op *log.Op) bool {
	s, _ := op.Object.(*log.Setting)
	switch {
	case op.Kind != log.KindSetting:
		return false
	case op.Action == log.Create:
		return s != nil && s.Name == designation.SettingBootDefault
	}
	return op.Action == log.Update && op.ID == designation.SettingBootDefault
}

// checkTritonSetting checks a setting of CNAPI's surface; it returns false for others.
func checkTritonSetting(d *draft, s *log.Setting) bool {
	switch s.Name {
	case designation.SettingAllocation:
		if _, err := designation.ParseDefaults(s.Value); err != nil {
			d.bad("value", err.Error(), "send NAME=VALUE with commas between, as in filter_headnode=false,overprovision_ratio_cpu=2")
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
