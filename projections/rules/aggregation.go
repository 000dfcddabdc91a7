package rules

import (
	"fmt"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// maxAggregationsOfCN: bonds, of at least two ports each.
const maxAggregationsOfCN = 64

var aggregationRules = hooks[*log.Aggregation]{
	settle: func(d *draft, _, a *log.Aggregation, op *log.Op) { settleAggregation(d, a, op) },
	check:  func(d *draft, _, a *log.Aggregation, op *log.Op) { checkAggregation(d, a, op) },
	duplicate: func(_ *draft, _ *log.Aggregation, e *log.FieldError) {
		e.Field, e.Message = "name", "aggregation with same belongs_to_uuid and name already exists"
	},
	owns:   func(_ *draft, cn log.UUID, a *log.Aggregation) bool { return a.BelongsToUUID == cn },
	within: aggregationWithin,
	limit: func(_ *draft, cn log.UUID, _ *log.Aggregation) ownedLimit {
		return ownedLimit{name: "cn_aggregations", most: maxAggregationsOfCN, sets: []projections.Index{projections.AggregationsOn(cn)}}
	},
}

// maxAggregated is NAPI's bound (spec/napi.md section 3.1).
const maxAggregated = 16

// settleAggregation brings the MACs into their one form, and takes the server
// from the NICs.
func settleAggregation(d *draft, a *log.Aggregation, op *log.Op) {
	if triton(d) {
		a.MACs = withoutRepeats(a.MACs) // in the order that they were named, as NAPI keeps them
	} else {
		slices.SortFunc(a.MACs, log.MAC.Compare) // a is a clone of our own
		a.MACs = slices.Compact(a.MACs)
	}
	slices.Sort(a.NICTagsProvided)
	a.NICTagsProvided = slices.Compact(a.NICTagsProvided)
	if op.Action != log.Create {
		return
	}
	if a.LACPMode == "" && !given(op, "lacp_mode") {
		a.LACPMode = "off"
	}
	if a.BelongsToUUID.IsZero() {
		for _, mac := range a.MACs {
			if n := d.nic(mac); n != nil {
				a.BelongsToUUID = n.BelongsToUUID
				return
			}
		}
	}
}

// withoutRepeats returns each MAC once, in the order of the first of each.
func withoutRepeats(macs []log.MAC) []log.MAC {
	var once []log.MAC
	for _, mac := range macs {
		if !slices.Contains(once, mac) {
			once = append(once, mac)
		}
	}
	return once
}

func checkAggregation(d *draft, a *log.Aggregation, op *log.Op) {
	switch name := a.Name; {
	case name == "":
		d.missing("name", "send a name that ends in a digit, such as aggr0")
	case len(name) > maxTagName:
		d.bad("name", fmt.Sprintf("must not be longer than %d characters", maxTagName), "choose a shorter name")
	case strings.ContainsFunc(name, func(r rune) bool { return !isWordRune(r) }):
		d.bad("name", "must only contain numbers, letters and underscores", "choose another name")
	case name[len(name)-1] < '0' || name[len(name)-1] > '9':
		d.bad("name", "must end in a number", "add one, as in "+name+"0")
	}
	if !slices.Contains([]string{"off", "active", "passive"}, a.LACPMode) {
		d.bad("lacp_mode", "Invalid LACP mode. Supported modes: off, active, passive", "send one of them")
	}
	checkTagList(d, a.NICTagsProvided)
	checkAggregated(d, a, op)
}

// checkAggregated checks the NICs of an aggregation.
func checkAggregated(d *draft, a *log.Aggregation, op *log.Op) {
	const remedy = "name 1 to 16 NICs of one server"
	switch {
	case len(a.MACs) == 0 && op.Action == log.Create && !given(op, "macs"):
		d.missing("macs", remedy)
		return
	case len(a.MACs) == 0:
		d.bad("macs", "must specify at least one MAC address", remedy)
		return
	case len(a.MACs) > maxAggregated:
		d.bad("macs", fmt.Sprintf("maximum of %d MAC addresses supported", maxAggregated), remedy)
		return
	}
	var unknown, foreign []string
	matching := true
	for _, mac := range a.MACs {
		n := d.nic(mac)
		if n == nil {
			unknown = append(unknown, mac.String())
			continue
		}
		if n.BelongsToType != "server" {
			foreign = append(foreign, mac.String())
		}
		matching = matching && n.BelongsToUUID == a.BelongsToUUID
	}
	wrong := func(message string, macs []string) {
		d.problem(log.FieldError{Field: "macs", Code: log.ElementInvalid, Message: message, Remedy: remedy, Invalid: macs})
	}
	switch {
	case unknown != nil:
		wrong("unknown MAC addresses", unknown)
	case !matching:
		wrong("belongs_to_uuid must match for all nics in the aggregation", nil)
	case foreign != nil:
		wrong("all nics must have belongs_to_uuid of type server", foreign)
	}
	for _, mac := range a.MACs {
		if other := aggregationOf(d, a.BelongsToUUID, mac); other != nil && other.Name != a.Name {
			d.problem(log.FieldError{
				Field: "macs", Code: log.ElementUsedBy, Message: fmt.Sprintf("In use by aggregation \"%s\"", d.show(other.ID())),
				Remedy: "take the NIC out of the other first", Type: other.Kind().String(), ID: other.ID(), Invalid: []string{mac.String()},
			})
		}
	}
}

// aggregationOf returns the aggregation of a server that a NIC is in, or nil.
func aggregationOf(d *draft, server log.UUID, mac log.MAC) *log.Aggregation {
	for o := range d.Objects(projections.AggregationsOn(server)) {
		if a := o.(*log.Aggregation); slices.Contains(a.MACs, mac) {
			return a
		}
	}
	return nil
}

// keepAggregated refuses to take a NIC from the server of its aggregation.
func keepAggregated(d *draft, before, after *log.NIC) {
	if after != nil && after.BelongsToUUID == before.BelongsToUUID && after.BelongsToType == before.BelongsToType || before.BelongsToType != "server" {
		return
	}
	a := aggregationOf(d, before.BelongsToUUID, before.MAC)
	if a == nil {
		return
	}
	const remedy = "take it out of the aggregation first"
	if after == nil {
		d.refuse(log.CodeInUse, "nic is in an aggregation", usedBy("mac", a.Kind().String(), a.ID(), remedy))
		return
	}
	d.problem(usedBy("belongs_to_uuid", a.Kind().String(), a.ID(), remedy))
}
