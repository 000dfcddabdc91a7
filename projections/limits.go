package projections

import (
	"errors"
	"fmt"
	"strconv"

	"rutter/log"
)

// contained reports whether the change is decided by the limits of log.Limits.
// Before that feature version all servers answer as the first programs did, byte
// for byte (SAFETY D1): a refusal's text is part of what they agree on.
func (d *draft) contained() bool { return d.base.feature >= log.FeatureContained }

// show returns what a client sent as a message shows it.
func (d *draft) show(input string) string {
	if !d.contained() {
		return input
	}
	return log.Quote(input)
}

// quote is show with quotes around it.
func (d *draft) quote(input string) string {
	if !d.contained() {
		return strconv.Quote(input)
	}
	return `"` + log.Quote(input) + `"`
}

// showError is what a message says of an id that cannot be read.
func (d *draft) showError(err error) string {
	var form *log.FormError
	if d.contained() && errors.As(err, &form) {
		return form.Short()
	}
	return err.Error()
}

// over notes that something is over a limit, if it is, and reports that.
func (d *draft) over(field string, n, most int, limit string) bool {
	if n <= most {
		return false
	}
	d.bad(field, fmt.Sprintf("%d is over the limit %s", n, limit), fmt.Sprintf("%d are the most", most))
	return true
}

// withinLimits reports whether an operation is so small that it can be decided,
// whatever else is wrong with it: nothing that it holds was looked at before.
func (d *draft) withinLimits(op *log.Op) bool {
	if !d.contained() {
		return true
	}
	field := idField[op.Kind]
	if field == "" {
		field = "id"
	}
	d.over(field, len(op.ID), log.MaxIDBytes, "id_bytes")
	d.over("set", len(op.Set), log.MaxSetNames, "set_names")
	d.over("options", len(op.Options), log.MaxOptions, "options")
	if op.Object != nil {
		d.objectFits(op.Object)
	}
	return !d.refused()
}

// objectFits reports whether an object is within the limits of any, and notes
// those that it is over.
func (d *draft) objectFits(o log.Object) bool {
	m := log.Measure(o)
	if d.over("object", m.Unknown, log.MaxUnknownBytes, "unknown_bytes") {
		return false
	}
	long := d.over(m.LongestField, m.Longest, log.MaxListElements, "list_elements")
	return !d.over("object", m.Bytes, log.MaxObjectBytes, "object_bytes") && !long
}

// resultFits notes that the ids of an accepted change are more than a result has room for.
func (d *draft) resultFits(ids []string) {
	if !d.contained() {
		return
	}
	n := log.EmptyResultBytes
	for _, id := range ids {
		n += log.IDHeaderBytes + len(id)
	}
	d.over("ops", n, log.MaxResultBytes, "result_bytes")
}

// bounded returns a refusal as it is answered and remembered.
func (d *draft) bounded(r *log.Refusal) *log.Refusal {
	if !d.contained() {
		return r
	}
	return r.Bounded()
}
