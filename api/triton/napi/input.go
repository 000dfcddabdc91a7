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
}

// readInput reads the parameters of a write.
func readInput(r *http.Request) (*input, error) {
	in := &input{values: make(map[string]any)}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fail(http.StatusBadRequest, "BadRequest", "the query cannot be read: "+err.Error())
	}
	for name, values := range query {
		in.values[name] = values[0]
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return in, nil
	}
	var fields map[string]any
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(&fields); err != nil {
		return nil, fail(http.StatusBadRequest, codeContent, "Invalid JSON: "+err.Error())
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fail(http.StatusBadRequest, codeContent, "Invalid JSON: text after the object")
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
		slices.Sort(unknown)
		in.errs = append(in.errs, element{Field: unknown, Code: log.ElementUnknown, Message: "Unknown parameters: " + strings.Join(unknown, ", ")})
	}
	return in, nil
}

// has reports whether a parameter was given.
func (in *input) has(name string) bool {
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

// err returns all errors, or nil.
func (in *input) err() error {
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
