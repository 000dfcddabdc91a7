package rules

import (
	"slices"

	"rutter/log"
)

// declared reports whether log.FeatureDeclared holds.
func declared(d *draft) bool { return d.State().Feature() >= log.FeatureDeclared }

// settleLabels brings the labels of an object that an operation sets into their one form,
// and notes what is wrong with them. after is the draft's own. Labels that a log has from
// before log.FeatureDeclared, which no program checked, stay until they are set.
func (d *draft) settleLabels(before, after log.Object) {
	labels := log.LabelsOf(after)
	if labels == nil || len(*labels) == 0 || !declared(d) {
		return
	}
	if before != nil && slices.Equal(*labels, *log.LabelsOf(before)) {
		return
	}
	sorted := slices.Clone(*labels)
	log.SortLabels(sorted)
	*labels = sorted
	if problem, remedy := log.CheckLabels(sorted); problem != "" {
		d.bad(log.FieldLabels, problem, remedy)
	}
}

// checkReverts notes what is wrong with the entries that a change names. Programs of before
// log.FeatureDeclared pass over them, so that this one decides then as if there were none.
func (d *draft) checkReverts() {
	if !declared(d) || len(d.change.Reverts) == 0 {
		return
	}
	if err := d.change.Reverts.Check(); err != nil {
		d.bad("reverts", err.Error(), "send seqs and ranges of them in order, as in #1042,#1050-#1060")
		return
	}
	if d.change.By.Role == log.RoleCN {
		d.bad("reverts", "a compute node takes back nothing", "use the certificate of an operator")
	}
	d.reverts = d.change.Reverts
}
