package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"rutter/log"
	"rutter/projections"
)

// withinLimits reports whether an operation is so small that it can be decided,
// whatever else is wrong with it: nothing that it holds was looked at before.
func (d *draft) withinLimits(op *log.Op) bool {
	if !d.contained() {
		return true
	}
	field := d.rules(op.Kind).idField
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

func (d *draft) checkOptions(op *log.Op) {
	for _, o := range op.Options {
		if !slices.Contains(d.rules(op.Kind).options, o) || op.Action == log.Delete {
			d.bad("options", fmt.Sprintf("\"%s\" does not fit a %s of a %s", d.show(string(o)), op.Action, op.Kind), "leave it out")
		}
	}
	if d.change.By.Role == log.RoleCN && (asks(op, log.OptionReserveIP) || asks(op, log.OptionReleaseIP)) {
		d.deny(op, "a compute node may not reserve or release an address", "use the certificate of an operator")
	}
	if asks(op, log.OptionReserveIP) && asks(op, log.OptionReleaseIP) {
		d.bad("options", "an address cannot be reserved and released", "choose one")
	}
}

// contained reports whether the change is decided by the limits of log.Limits.
// Before that feature version all servers answer as the first programs did, byte
// for byte (SAFETY D1): a refusal's text is part of what they agree on.
func (d *draft) contained() bool { return d.State().Feature() >= log.FeatureContained }

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

// checkText bounds a text that may be empty.
func (d *draft) checkText(field, text string) {
	if len(text) > projections.MaxTextBytes {
		d.bad(field, fmt.Sprintf("must not be longer than %d bytes", projections.MaxTextBytes), "shorten it")
	}
}

func (d *draft) checkName(name string) {
	if name == "" || len(name) > projections.MaxNameBytes {
		d.bad("name", fmt.Sprintf("must have 1 to %d characters", projections.MaxNameBytes), "choose a name")
	}
}

// checkJSON: text that readers take for JSON must be; first, if not 0, is what it
// begins with.
func (d *draft) checkJSON(field, text string, most int, first byte) {
	switch {
	case text == "":
	case len(text) > most:
		d.bad(field, fmt.Sprintf("%d bytes are over %d", len(text), most), "send less")
	case !json.Valid([]byte(text)) || first != 0 && text[0] != first:
		d.bad(field, "it is not JSON of the form that is wanted", "send the text of a JSON value, an object where the field's name is a plural or params")
	}
}

// checkTexts: a list of JSON objects in text.
func (d *draft) checkTexts(field string, list []string, most int) {
	if len(list) > most {
		d.bad(field, fmt.Sprintf("%d entries are over %d", len(list), most), "send fewer")
		return
	}
	for i, text := range list {
		d.checkJSON(fmt.Sprintf("%s.%d", field, i), text, projections.MaxFieldJSON, '{')
	}
}

// asks reports whether the operation has the option.
func asks(op *log.Op, option log.Option) bool { return slices.Contains(op.Options, option) }

func usedBy(field, kind, id, remedy string) log.FieldError {
	return log.FieldError{
		Field: field, Code: log.ElementUsedBy, Message: fmt.Sprintf("In use by %s \"%s\"", kind, id),
		Remedy: remedy, Type: kind, ID: id,
	}
}
