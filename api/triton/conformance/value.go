package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// use is $(NAME): the value of that name.
var use = regexp.MustCompile(`\$\(([^()]*)\)`)

// values are what rows captured, and the constants of their group, by name.
type values map[string]any

// text fills the values into a text; escape is applied to each.
func (v values) text(s string, escape func(string) string) string {
	return use.ReplaceAllStringFunc(s, func(found string) string {
		return escape(printed(v[found[2:len(found)-1]]))
	})
}

// fill fills the values into each text of a JSON value. A text that is nothing but one
// $(NAME) becomes the value with its type.
func (v values) fill(x any) any {
	switch x := x.(type) {
	case string:
		if m := use.FindStringSubmatch(x); m != nil && m[0] == x {
			return v[m[1]]
		}
		return v.text(x, func(s string) string { return s })
	case []any:
		list := make([]any, len(x))
		for i := range x {
			list[i] = v.fill(x[i])
		}
		return list
	case map[string]any:
		m := make(map[string]any, len(x))
		for k, e := range x {
			m[v.text(k, func(s string) string { return s })] = v.fill(e)
		}
		return m
	default:
		return x
	}
}

// wanted fills the values into a matcher: in a pattern they stand for themselves.
func (v values) wanted(x any) any {
	switch x := x.(type) {
	case string:
		if strings.HasPrefix(x, "<like ") {
			return v.text(x, regexp.QuoteMeta)
		}
		return v.fill(x)
	case []any:
		list := make([]any, len(x))
		for i := range x {
			list[i] = v.wanted(x[i])
		}
		return list
	case map[string]any:
		m := make(map[string]any, len(x))
		for k, e := range x {
			m[v.text(k, func(s string) string { return s })] = v.wanted(e)
		}
		return m
	default:
		return x
	}
}

// printed is a value as text in a path, a query or a header.
func printed(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	case nil:
		return ""
	default:
		b, _ := json.Marshal(v) // it was JSON
		return string(b)
	}
}

// target is the row's path and query with the values filled in.
func (v values) target(r *Row) string {
	to := v.text(r.Path(), url.PathEscape)
	query := url.Values{}
	for name, value := range r.Query {
		query.Set(name, v.text(value, func(s string) string { return s }))
	}
	if len(query) > 0 {
		to += "?" + query.Encode()
	}
	return to
}

// capture takes values from an answer.
func (v values) capture(r *Row, header http.Header, body any) error {
	for _, name := range sortedKeys(r.Capture) {
		place := r.Capture[name]
		if h, ok := strings.CutPrefix(place, "header "); ok {
			if header.Get(h) == "" {
				return fmt.Errorf("the answer has no header %s, of which the value %s comes", h, name)
			}
			v[name] = header.Get(h)
			continue
		}
		found, ok := at(body, place)
		if !ok {
			return fmt.Errorf("the answer has no %s, of which the value %s comes", place, name)
		}
		v[name] = found
	}
	return nil
}

// at follows a place such as 0.uuid; the place "." is the whole.
func at(body any, place string) (any, bool) {
	if place == "." {
		return body, body != nil
	}
	for step := range strings.SplitSeq(place, ".") {
		switch b := body.(type) {
		case map[string]any:
			next, ok := b[step]
			if !ok {
				return nil, false
			}
			body = next
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(b) {
				return nil, false
			}
			body = b[i]
		default:
			return nil, false
		}
	}
	return body, body != nil
}

// uses are the names of the values that the row needs, sorted.
func (r *Row) uses() []string {
	found := map[string]bool{}
	var walk func(any)
	walk = func(x any) {
		switch x := x.(type) {
		case string:
			for _, m := range use.FindAllStringSubmatch(x, -1) {
				found[m[1]] = true
			}
		case []any:
			for _, e := range x {
				walk(e)
			}
		case map[string]any:
			for k, e := range x {
				walk(k)
				walk(e)
			}
		}
	}
	walk(r.Call)
	for _, m := range []map[string]string{r.Query, r.Headers} {
		for _, value := range m {
			walk(value)
		}
	}
	walk(r.Body)
	if r.Raw != nil {
		walk(*r.Raw)
	}
	for _, e := range []*Expect{&r.Expect, r.Ours} {
		if e == nil {
			continue
		}
		walk(e.Answer)
		walk(e.Message)
		walk(e.Errors)
		for _, value := range e.Got {
			walk(value)
		}
	}
	return sortedKeys(found)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
