package rules

import (
	"fmt"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// permit decides whether the author may do the operation to the object that there
// is. A CN is told the same of what is another's and of what there is not.
func (d *draft) permit(op *log.Op) bool {
	switch by := d.change.By; by.Role {
	case log.RoleTrusted:
		return true
	case log.RoleForeign:
		if !d.rules(op.Kind).Guarded {
			return true
		}
		d.deny(op, fmt.Sprintf("a program without a certificate may not write a %s", op.Kind), "use the certificate of an operator")
	case log.RoleCN:
		return d.permitCN(op)
	default:
		d.deny(op, fmt.Sprintf("the role %s may not write", by.Role), "use the certificate of an operator")
	}
	return false
}

func (d *draft) permitCN(op *log.Op) bool {
	rules := d.rules(op.Kind)
	rights := rules.CN
	if rights == nil {
		d.deny(op, fmt.Sprintf("a compute node may not write a %s", op.Kind), "use the certificate of an operator")
		return false
	}
	if op.Action == log.Create && rights.Create == nil || op.Action == log.Update && rights.Update == nil || op.Action == log.Delete && !rights.Delete {
		d.deny(op, fmt.Sprintf("a compute node may not %s a %s", op.Action, op.Kind), "use the certificate of an operator")
		return false
	}
	if op.Action == log.Create {
		return true // what it makes is looked at when all fields are known
	}
	if r, ok, err := d.Get(op.Kind, op.ID); err == nil && ok && d.owns(d.change.By.CN, r.Object, rules) {
		if op.Action == log.Update || !d.confined() || rules.special.mayBeTaken(d, d.change.By.CN, r.Object, r.Object) {
			return true // one that may come to it is not its own to delete yet
		}
	}
	d.notOneOf(op, op.ID)
	return false
}

// owns reports whether an object is about cn: itself, or what runs on it.
func (d *draft) owns(cn log.UUID, o log.Object, rules *kindRules) bool {
	return !cn.IsZero() && rules.special.isOf(d, cn, o)
}

// permitFields decides, for a CN, whether what the operation made of an object is
// its own still, and only in fields that it may write. before is nil for a create.
func (d *draft) permitFields(op *log.Op, before, after log.Object) {
	by := d.change.By
	if by.Role != log.RoleCN || d.refused() {
		return
	}
	rules := d.rules(op.Kind)
	if !d.owns(by.CN, after, rules) || !rules.special.mayBeTaken(d, by.CN, before, after) {
		d.notOneOf(op, after.ID())
		return
	}
	if d.permitNames(op, before, after); !d.refused() {
		d.checkOwned(op, before, after, rules)
	}
}

// permitNames refuses fields that a CN may not write.
func (d *draft) permitNames(op *log.Op, before, after log.Object) {
	by, rules := d.change.By, d.rules(op.Kind)
	var foreign []log.FieldError
	allowed := rules.CN.Create
	if before != nil {
		allowed = slices.Concat(rules.CN.Update, rules.special.moreFields(by.CN, before))
	}
	for _, name := range d.touched(op, before, after) {
		if !slices.Contains(allowed, name) {
			foreign = append(foreign, log.FieldError{
				Field: d.show(name), Code: log.ElementInvalid, Message: "not a field that a compute node may write",
				Remedy: "it may write " + strings.Join(allowed, ", "),
			})
		}
	}
	if foreign != nil {
		d.refuse(log.CodeNotAuthorized, fmt.Sprintf("compute node %s may not write these fields of a %s", by.CN, op.Kind), foreign...)
	}
}

// ownedLimit is a limit of objects of one kind. Limits of what a compute node may
// own are decided in the log's order, since of two changes at once each might be the
// last that fits.
type ownedLimit struct {
	name  string // in refusals and docs/safety.md
	most  int
	sets  []projections.Index // each of which may have so many
	owner string              // whose limit it is, in words; "": the compute node's
}

// checkOwned refuses what gives a compute node more objects than it may own: a new
// one, or one that was another's. before is nil for a create.
func (d *draft) checkOwned(op *log.Op, before, after log.Object, rules *kindRules) {
	cn := d.change.By.CN
	if d.refused() || !d.contained() || before != nil && !rules.special.isNewTo(cn, before, after) {
		return
	}
	l, ok := rules.special.limitOf(d, cn, after)
	if !ok || !slices.ContainsFunc(l.sets, func(x projections.Index) bool { return d.Count(x, l.most) >= l.most }) {
		return
	}
	if l.owner == "" {
		l.owner = "compute node " + cn.String()
	}
	message := fmt.Sprintf("%s has %d %ss, the most that it may have (limit %s)", l.owner, l.most, rules.Noun, l.name)
	d.refuse(log.CodeLimit, message, log.FieldError{
		Field: rules.IDField, Code: log.ElementInvalid, Message: message,
		Remedy: "delete what is not needed, or have an operator raise the setting " + SettingCNMaxVMs,
	})
}

// touched are the fields that the operation sets or changes. One that is sent
// with the value that it has is not touched.
func (d *draft) touched(op *log.Op, before, after log.Object) []string {
	if before == nil {
		return op.Set
	}
	var names []string
	for _, change := range log.Diff(before, after) {
		if given(op, change.Path) {
			names = append(names, change.Path)
		}
	}
	return names
}
