package rules

import (
	"fmt"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

var nicTagRules = hooks[*log.NICTag]{
	fill:  fillTag,
	check: checkTag,
	isFixed: func(before, _ *log.NICTag, field, message string) (string, bool) {
		if field == "name" && (before.Name == adminTag || before.Name == "external") {
			message = before.Name + " nic tag cannot be renamed"
		}
		return message, true
	},
	remove: func(d *draft, t *log.NICTag) {
		d.unused(t, "nic tag is in use", "delete the networks on it, and take it from the NICs, first",
			projections.NetworksOnTag(t.Name), projections.NICsOnTag(t.Name), projections.AggregationsOnTag(t.Name))
	},
}

func fillTag(d *draft, t *log.NICTag, op *log.Op) {
	if t.MTU == 0 && !given(op, "mtu") {
		t.MTU = projections.MinTagMTU
	}
}

func checkTag(d *draft, before, t *log.NICTag, _ *log.Op) {
	switch {
	case t.Name == "":
		d.missing("name", "send a name of letters, digits and underscores")
	case len(t.Name) > maxTagName:
		d.bad("name", fmt.Sprintf("must not be longer than %d characters", maxTagName), "choose a shorter name")
	case strings.ContainsFunc(t.Name, func(r rune) bool { return !isWordRune(r) }):
		d.bad("name", "must only contain numbers, letters and underscores", "choose another name, without / in it")
	}
	if t.MTU < projections.MinTagMTU || t.MTU > maxMTU {
		d.bad("mtu", fmt.Sprintf("mtu must be a number between %d and %d", projections.MinTagMTU, maxMTU), fmt.Sprintf("send %d unless the switches carry more", projections.MinTagMTU))
	} else if t.Name == adminTag && t.MTU != projections.MinTagMTU {
		d.bad("mtu", fmt.Sprintf("admin nic tag mtu must be %d", projections.MinTagMTU), "leave it out")
	}
	for o := range d.Objects(projections.All(log.KindNICTag)) {
		if other := o.(*log.NICTag); other.UUID == t.UUID && other.Name != t.Name {
			d.problem(log.FieldError{
				Field: "uuid", Code: log.ElementDuplicate, Message: "Already exists", Remedy: "leave it out", Type: "nic_tag", ID: other.Name,
			})
		}
	}
	if before != nil {
		checkTagUpdate(d, before, t)
	}
}

// checkTagUpdate keeps a tag's MTU at or above that of its networks.
func checkTagUpdate(d *draft, before, t *log.NICTag) {
	if t.MTU >= before.MTU {
		return
	}
	named := 0
	for o := range d.Objects(projections.NetworksOnTag(t.Name)) {
		if n := o.(*log.Network); n.MTU > t.MTU && named < maxUsedBy {
			named++
			d.problem(log.FieldError{
				Field: "mtu", Code: log.ElementUsedBy, Message: fmt.Sprintf("network \"%s\" has mtu %d", n.UUID, n.MTU),
				Remedy: "lower the networks' mtu first", Type: "network", ID: n.ID(),
			})
		}
	}
}

// isWordRune accepts [A-Za-z0-9_].
func isWordRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_'
}

// checkTagList checks the NIC tags that a NIC or an aggregation provides.
func checkTagList(d *draft, names []string) {
	if len(names) > maxTagsOnOne {
		d.bad("nic_tags_provided", fmt.Sprintf("there are %d tags", len(names)), fmt.Sprintf("name at most %d", maxTagsOnOne))
		return
	}
	for i, name := range names {
		if d.tag(name) == nil {
			d.bad("nic_tags_provided", fmt.Sprintf("nic tag \"%s\" does not exist", d.show(name)), "create the tag first")
		} else if slices.Contains(names[:i], name) {
			d.bad("nic_tags_provided", fmt.Sprintf("nic tag \"%s\" is named twice", d.show(name)), "name it once")
		}
	}
}
