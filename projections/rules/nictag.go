package rules

import (
	"fmt"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

var nicTagRules = hooks[*log.NICTag]{
	instead: renameTag,
	fill:    fillTag,
	check:   checkTag,
	isFixed: func(before, _ *log.NICTag, field, message string) (string, bool) {
		if field == "name" && (before.Name == adminTag || before.Name == externalTag) {
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

// checkTagText checks what a tag says by itself.
func checkTagText(d *draft, t *log.NICTag) {
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
}

func checkTag(d *draft, before, t *log.NICTag, _ *log.Op) {
	checkTagText(d, t)
	reported := 0
	for o := range d.Objects(projections.All(log.KindNICTag)) {
		other := o.(*log.NICTag)
		if other.UUID == t.UUID && other.Name != t.Name {
			d.problem(log.FieldError{
				Field: "uuid", Code: log.ElementDuplicate, Message: "Already exists", Remedy: "leave it out", Type: "nic_tag", ID: other.Name,
			})
		}
		if other.ReportedBy == t.ReportedBy {
			reported++
		}
	}
	if before == nil && !t.ReportedBy.IsZero() {
		checkReported(d, t, reported)
	}
	if before != nil {
		checkTagUpdate(d, before, t)
	}
}

// maxTagsOfNode bounds the NIC tags that servers make from what one compute node says that
// its links carry: as many as one link may provide. A node has a handful.
const maxTagsOfNode = maxTagsOnOne

// checkReported decides, from log.FeatureTriton on, whether a tag may be made from a compute
// node's sysinfo, from which there are n tags. The servers make it, not the node: so a node
// that lies fills nothing, and gives a tag neither a UUID nor an MTU of its choice.
func checkReported(d *draft, t *log.NICTag, n int) {
	if !triton(d) {
		return
	}
	if _, ok := d.ByUUID(log.KindServer, t.ReportedBy); !ok {
		d.bad("reported_by", fmt.Sprintf("there is no server %s", t.ReportedBy), "send the UUID of a server; one is made when its sysinfo comes")
	}
	if n < maxTagsOfNode || d.refused() || d.tag(t.Name) != nil {
		return
	}
	message := fmt.Sprintf("compute node %s has reported %d NIC tags, the most that are made of its reports (limit cn_tags)", t.ReportedBy, n)
	d.refuse(log.CodeLimit, message, log.FieldError{
		Field: "name", Code: log.ElementInvalid, Message: message, Remedy: "delete those that are not needed, or create the tag as an operator",
	})
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

// externalTag is, with adminTag, a NIC tag that keeps its name (spec/napi.md section 3.4).
const externalTag = "external"

// renameTag decides an update of a NIC tag that gives it another name, from
// log.FeatureTriton on. The name is its id: so the tag is made anew with its UUID, what
// names it is changed, and the old one goes, all in one change. As in NAPI, a tag with
// networks on it keeps its name. NICs and aggregations that name it follow, where NAPI
// leaves them with a name that is no tag's.
func renameTag(d *draft, op *log.Op) (id string, ok bool) {
	asked, _ := op.Object.(*log.NICTag)
	if !triton(d) || op.Action != log.Update || asked == nil || !given(op, "name") || asked.Name == op.ID || asked.Name == "" {
		return "", false
	}
	rules := d.rules(op.Kind)
	r, found := d.target(op, rules)
	if !found {
		return "", true
	}
	before := r.Object.(*log.NICTag)
	if before.Name == adminTag || before.Name == externalTag {
		d.bad("name", before.Name+" nic tag cannot be renamed", "leave it out, or create another "+rules.Noun)
		return "", true
	}
	after := log.Clone(before).(*log.NICTag)
	if unknown := log.Assign(after, op.Object, op.Set); unknown != "" {
		return "", false // the update says so
	}
	for _, change := range log.Diff(before, after) {
		if change.Path != rules.IDField && slices.Contains(rules.Immutable, change.Path) {
			d.bad(change.Path, rules.Title+" updates for this field are not supported", "leave it out, or create another "+rules.Noun)
		}
	}
	checkTagText(d, after)
	if d.tag(after.Name) != nil {
		d.duplicate(after, rules)
	}
	for o := range d.Objects(projections.NetworksOnTag(before.Name)) {
		if d.problem(usedBy("nic_tag", o.Kind().String(), o.ID(), "delete the networks on it first")); len(d.problems) >= maxUsedBy {
			break
		}
	}
	users := usersOfTag(d, before.Name)
	if d.refused() {
		return "", true
	}
	id = d.emit(projections.Record{}, after)
	for _, o := range users {
		retag(d, o, before.Name, after.Name)
	}
	d.emit(r, nil)
	return id, true
}

// maxRetagged bounds the NICs and aggregations that follow a tag to its new name, and,
// doubled, the events of a change that renames one: else a change of many renames would make each of its
// objects follow as often, and servers would decide for minutes. A large cloud has one or
// two NICs of each server on a tag; NICs on networks name none.
const maxRetagged = 1024

// usersOfTag returns the NICs and aggregations that name a tag, or notes that they are too
// many.
func usersOfTag(d *draft, name string) (users []log.Object) {
	for _, x := range []projections.Index{projections.NICsOnTag(name), projections.AggregationsOnTag(name)} {
		for o := range d.Objects(x) {
			switch {
			case len(users) == maxRetagged:
				d.bad("name", fmt.Sprintf("nic tag \"%s\" is named by more NICs and aggregations than the limit retagged", name),
					fmt.Sprintf("%d are the most that follow a tag: create the other tag, and change them to it", maxRetagged))
				return nil
			case len(d.events)+len(users) >= 2*maxRetagged:
				d.bad("name", fmt.Sprintf("with nic tag \"%s\" the change has more events than the limit retagged allows", name), "rename the tags in changes of their own")
				return nil
			}
			users = append(users, o)
		}
	}
	return users
}

// retag makes the event of an object that names a tag which is renamed.
func retag(d *draft, o log.Object, from, to string) {
	r, _ := d.Find(o)
	o = log.Clone(o)
	move := func(names []string) {
		for i, name := range names {
			if name == from {
				names[i] = to
			}
		}
	}
	switch o := o.(type) {
	case *log.NIC:
		if o.NICTag == from {
			o.NICTag = to
		}
		move(o.NICTagsProvided)
		o.Modified = d.time
	case *log.Aggregation:
		move(o.NICTagsProvided)
		slices.Sort(o.NICTagsProvided) // their one form
	}
	d.emit(r, o)
}
