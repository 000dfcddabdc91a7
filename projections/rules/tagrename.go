package rules

import (
	"fmt"
	"slices"

	"rutter/log"
	"rutter/projections"
)

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

// maxRetagged bounds the NICs and aggregations that follow a tag to its new name in one
// change. A large cloud has one or two NICs of each server on a tag; NICs on networks name
// none.
const maxRetagged = 1024

// usersOfTag returns the NICs and aggregations that name a tag, or notes that they are too
// many.
func usersOfTag(d *draft, name string) (users []log.Object) {
	for _, x := range []projections.Index{projections.NICsOnTag(name), projections.AggregationsOnTag(name)} {
		for o := range d.Objects(x) {
			if len(users) == maxRetagged {
				d.bad("name", fmt.Sprintf("nic tag \"%s\" is named by more NICs and aggregations than the limit retagged", name),
					fmt.Sprintf("%d are the most that follow a tag: create the other tag, and change them to it", maxRetagged))
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
	}
	d.emit(r, o)
}
