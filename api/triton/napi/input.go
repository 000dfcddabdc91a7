package napi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"rutter/log"
)

// input are the parameters of a request: those of the query, overridden by those of the
// body, as restify mixes them for NAPI. Errors are collected, so that the answer names
// all of them.
type input struct {
	values map[string]any // strings of the query, and what JSON has
	errs   []element
	set    []string // fields that were taken
	// known are the names that the endpoint asked for, and those of the object's form;
	// nil: unknown names are not looked for.
	known map[string]bool
}

// nonObject is the answer to a body of JSON that is no object.
func nonObject() *problem { return invalid(bad("parameters", "Parameters must be objects")) }

// readInput reads the parameters of a write to an object of form.
func (s *Service) readInput(r *http.Request, form any) (*input, error) {
	in := &input{values: make(map[string]any)}
	if s.strict() {
		in.known = namesOf(form)
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fail(http.StatusBadRequest, "BadRequest", "the query cannot be read: "+err.Error())
	}
	for name, values := range query {
		in.values[name] = oneOrAll(values)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return in, nil
	}
	var all any
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(&all); err != nil {
		return nil, fail(http.StatusBadRequest, codeContent, "Invalid JSON: "+err.Error())
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fail(http.StatusBadRequest, codeContent, "Invalid JSON: text after the object")
	}
	fields, ok := all.(map[string]any)
	if !ok && all != nil { // null is no body, as in restify
		return nil, nonObject()
	}
	for name, value := range fields {
		in.values[name] = value
	}
	return in, nil
}

// ownParameters are Rutter's, which every read takes besides NAPI's.
var ownParameters = []string{"consistent", "min_seq"}

// readQuery reads the parameters of a list, and refuses unknown ones, as NAPI does.
func readQuery(r *http.Request, allowed ...string) (*input, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fail(http.StatusBadRequest, "BadRequest", "the query cannot be read: "+err.Error())
	}
	in := &input{values: make(map[string]any)}
	var unknown []string
	for name, values := range query {
		switch {
		case slices.Contains(allowed, name):
			in.values[name] = strings.Join(values, ",")
		case !slices.Contains(ownParameters, name):
			unknown = append(unknown, name)
		}
	}
	if unknown != nil {
		in.errs = append(in.errs, unknownNames(unknown))
	}
	return in, nil
}

// oneOrAll returns the value of a parameter of a query; a repeated one is an array.
func oneOrAll(values []string) any {
	if len(values) == 1 {
		return values[0]
	}
	all := make([]any, len(values))
	for i, v := range values {
		all[i] = v
	}
	return all
}

// has reports whether a parameter was given.
func (in *input) has(name string) bool {
	in.knows(name)
	_, ok := in.values[name]
	return ok
}

// require records the parameters that are missing.
func (in *input) require(names ...string) {
	for _, name := range names {
		if !in.has(name) {
			in.errs = append(in.errs, missing(name))
		}
	}
}

// bad records an error of a parameter.
func (in *input) bad(name, message string) { in.errs = append(in.errs, bad(name, message)) }

// knows notes a parameter that the endpoint has.
func (in *input) knows(name string) {
	if in.known != nil {
		in.known[name] = true
	}
}

// refuseUnknown records the parameters that the endpoint does not have, if it looks for
// them.
func (in *input) refuseUnknown() {
	if in.known == nil {
		return
	}
	var unknown []string
	for name := range in.values {
		if !in.known[name] && !slices.Contains(ownParameters, name) && !slices.Contains(tolerated, name) {
			unknown = append(unknown, name)
		}
	}
	in.known = nil // said once
	if unknown != nil {
		in.errs = append(in.errs, unknownNames(unknown))
	}
}

func unknownNames(names []string) element {
	slices.Sort(names)
	return element{Field: names, Code: log.ElementUnknown, Message: "Unknown parameters: " + strings.Join(names, ", ")}
}

// err returns all errors, or nil. All parameters of the endpoint must have been asked
// for.
func (in *input) err() error {
	in.refuseUnknown()
	if len(in.errs) == 0 {
		return nil
	}
	return invalid(in.errs...)
}

// names returns the fields that were taken, sorted, with more.
func (in *input) names(more ...string) []string {
	all := append(slices.Clone(in.set), more...)
	slices.Sort(all)
	return slices.Compact(all)
}

// take reads a parameter into to, if it is given.
func take[T any](in *input, name string, parse func(v any) (T, *element), to *T) (taken bool) {
	in.knows(name)
	v, ok := in.values[name]
	if !ok {
		return false
	}
	got, wrong := parse(v)
	if wrong != nil {
		wrong.Field = name
		in.errs = append(in.errs, *wrong)
		return false
	}
	*to = got
	in.set = append(in.set, name)
	return true
}

// page reads limit and offset.
func (in *input) page() (limit, offset uint64) {
	limit = MaxList
	take(in, "limit", number(1, MaxList, "invalid limit, must be an integer greater than 0 or less than or equal to 1000"), &limit)
	take(in, "offset", number(0, 1<<62, "invalid value, offset must be an integer greater than or equal to 0"), &offset)
	return limit, offset
}
