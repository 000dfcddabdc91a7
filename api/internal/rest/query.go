package rest

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"rutter/log"
)

// Parameters are a query whose names were checked. The zero value is empty.
type Parameters struct{ values url.Values }

// With returns the query with another value of a parameter.
func (p Parameters) With(name, value string) Parameters {
	values := maps.Clone(p.values)
	values.Set(name, value)
	return Parameters{values}
}

// Freshness are the query parameters that every read of the state takes.
var Freshness = []string{"consistent", "min_seq"}

// Query returns the request's query. It returns an error for a parameter that is
// neither in allowed nor in Freshness, and for a repeated one.
func Query(r *http.Request, allowed ...string) (Parameters, error) {
	p, err := AnyQuery(r)
	if err != nil || len(p.values) == 0 {
		return p, err
	}
	values := p.values
	allowed = append(slices.Clone(allowed), Freshness...)
	slices.Sort(allowed)
	bad := &Error{Status: http.StatusUnprocessableEntity, Code: log.CodeInvalidParameters, Message: "Invalid parameters"}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(allowed, name):
			bad.Errors = append(bad.Errors, log.FieldError{
				Field: name, Code: log.ElementUnknown, Message: "unknown query parameter",
				Remedy: "leave it out, or use one of: " + strings.Join(allowed, ", "),
			})
		case len(values[name]) > 1:
			bad.Errors = append(bad.Errors, log.FieldError{
				Field: name, Code: log.ElementInvalid, Message: "given more than once", Remedy: "give it once; lists are parted by commas",
			})
		}
	}
	if bad.Errors != nil {
		return Parameters{}, bad
	}
	return p, nil
}

// AnyQuery returns the request's query without a check of names.
func AnyQuery(r *http.Request) (Parameters, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return Parameters{}, Fail(http.StatusBadRequest, CodeBadRequest, "encode it as name=value&name=value", "the query cannot be read: %v", err)
	}
	return Parameters{values}, nil
}

// Has reports whether a parameter was given.
func (p Parameters) Has(name string) bool { return p.values.Has(name) }

// Text returns a parameter; "" if it was not given.
func (p Parameters) Text(name string) string { return p.values.Get(name) }

// Values returns all parameters. Callers must not change them.
func (p Parameters) Values() url.Values { return p.values }

// Number returns a parameter between low and high, or def if it is not given.
func (p Parameters) Number(name string, def, low, high uint64) (uint64, error) {
	if !p.Has(name) {
		return def, nil
	}
	n, err := strconv.ParseUint(p.Text(name), 10, 64)
	if err != nil || n < low || n > high {
		return 0, BadParameter(name, log.ElementInvalid, "send a whole number from "+strconv.FormatUint(low, 10)+" to "+strconv.FormatUint(high, 10), "got %q", p.Text(name))
	}
	return n, nil
}

// Flag returns whether a parameter stands alone, or is true or 1.
func (p Parameters) Flag(name string) (bool, error) {
	if !p.Has(name) {
		return false, nil
	}
	switch p.Text(name) {
	case "", "1", "true":
		return true, nil
	case "0", "false":
		return false, nil
	}
	return false, BadParameter(name, log.ElementInvalid, "send "+name+" alone, or true or false", "got %q", p.Text(name))
}

// Page reads limit and offset as strconv.Atoi reads numbers: limit from 1 to most,
// offset from 0. given says which of them to read; the others are most and 0. bad is
// the name of an invalid one, or "".
func Page(query url.Values, most int, given func(name string) bool) (limit, offset int, bad string) {
	limit = most
	var err error
	if given("limit") {
		if limit, err = strconv.Atoi(query.Get("limit")); err != nil || limit < 1 || limit > most {
			return 0, 0, "limit"
		}
	}
	if given("offset") {
		if offset, err = strconv.Atoi(query.Get("offset")); err != nil || offset < 0 {
			return 0, 0, "offset"
		}
	}
	return limit, offset, ""
}
