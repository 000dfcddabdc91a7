package conformance

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed data/*.yaml
var data embed.FS

const (
	maxRows   = 500 // rows of one group
	maxWithin = 30  // seconds
)

// All are the embedded groups, by service and name.
func All() ([]*Group, error) {
	return load(data)
}

func load(files fs.FS) ([]*Group, error) {
	names, err := fs.Glob(files, "data/*.yaml")
	if err != nil {
		return nil, err
	}
	var groups []*Group
	var errs []error
	rows := map[string]string{}
	for _, name := range names {
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		g, err := Parse(strings.TrimSuffix(path.Base(name), ".yaml"), b)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path.Base(name), err))
			continue
		}
		for _, r := range g.Rows {
			if other := rows[r.ID]; other != "" {
				errs = append(errs, fmt.Errorf("%s: line %d: the id %q is also in %s", path.Base(name), r.line, r.ID, other))
			}
			rows[r.ID] = path.Base(name)
		}
		groups = append(groups, g)
	}
	slices.SortStableFunc(groups, func(a, b *Group) int {
		return slices.Index(Services, a.Service) - slices.Index(Services, b.Service)
	})
	return groups, errors.Join(errs...)
}

// Parse reads one file. Its errors name lines, and there may be several.
func Parse(name string, b []byte) (*Group, error) {
	top, err := document(b)
	if err != nil {
		return nil, err
	}
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: want group, service, title and rows", top.Line)
	}
	g := &Group{}
	var errs []error
	seen := map[string]bool{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		if seen[key.Value] {
			errs = append(errs, fmt.Errorf("line %d: %q stands twice", key.Line, key.Value))
		}
		seen[key.Value] = true
		if err := g.set(key, value); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		errs = g.check(name)
	}
	return g, errors.Join(errs...)
}

// set takes one key of the file.
func (g *Group) set(key, value *yaml.Node) error {
	switch key.Value {
	case "group":
		return into(value, &g.Name)
	case "service":
		return into(value, &g.Service)
	case "title":
		return into(value, &g.Title)
	case "values":
		return into(value, &g.Values)
	case "setup":
		return elements(value, &g.Setup, func(r *Row, line int) { r.line = line })
	case "rows":
		return elements(value, &g.Rows, func(r *Row, line int) { r.line = line })
	case "compare":
		return elements(value, &g.Compare, func(l *Listing, line int) { l.line = line })
	default:
		return fmt.Errorf("line %d: the key %q is not known: want group, service, title, values, setup, rows or compare", key.Line, key.Value)
	}
}

// elements reads a list of structs.
func elements[T any](n *yaml.Node, to *[]*T, at func(*T, int)) error {
	if n.Kind != yaml.SequenceNode {
		return fmt.Errorf("line %d: want a list", n.Line)
	}
	if len(n.Content) > maxRows {
		return fmt.Errorf("line %d: %d rows, the limit is %d: split the file", n.Line, len(n.Content), maxRows)
	}
	var errs []error
	for _, c := range n.Content {
		v := new(T)
		if err := into(c, v); err != nil {
			errs = append(errs, err)
			continue
		}
		at(v, c.Line)
		*to = append(*to, v)
	}
	return errors.Join(errs...)
}

var (
	groupName = regexp.MustCompile(`^[a-z][a-z0-9-]{2,40}$`)
	valueName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)
	callForm  = regexp.MustCompile(`^(GET|HEAD|POST|PUT|DELETE|PATCH|OPTIONS) /[^ ?#]*$`)
)

// check finds what a reader of the group would stumble over, and what the runner could not run.
func (g *Group) check(name string) (errs []error) {
	bad := func(line int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("line %d: %w", line, fmt.Errorf(format, args...)))
	}
	if g.Name != name || !groupName.MatchString(name) {
		bad(1, "the group %q stands in the file %s.yaml: want the same name, in small letters, digits and dashes", g.Name, name)
	}
	if !slices.Contains(Services, g.Service) {
		bad(1, "service %q: want one of %v", g.Service, Services)
	}
	if g.Title == "" || len(g.Rows) == 0 {
		bad(1, "want a title and rows")
	}
	known := map[string]bool{}    // values that a row may use
	readOnly := map[string]bool{} // those that a read-only row may use
	for name := range g.Values {
		known[name], readOnly[name] = true, true
		if !valueName.MatchString(name) {
			bad(1, "the value %q: want small letters, digits and _", name)
		}
	}
	for i, r := range slices.Concat(g.Setup, g.Rows) {
		for _, err := range g.checkRow(r, i < len(g.Setup), known, readOnly) {
			bad(r.line, "%s: %w", r.called(), err)
		}
		for name := range r.Capture {
			known[name] = true
			readOnly[name] = r.ReadOnly
		}
	}
	lists := map[string]bool{"": true}
	for _, l := range g.Compare {
		if !strings.HasPrefix(l.Path, "/") || l.Key == "" {
			bad(l.line, "a list to compare needs a path and a key")
		}
		if !lists[l.Each] || (l.Each != "") != strings.Contains(l.Path, "$(each)") {
			bad(l.line, "%s: each is the path of an earlier list, and $(each) stands in the path", l.Path)
		}
		if l.Page < 0 || l.Page > pageLimit {
			bad(l.line, "%s: a page has 1 to %d objects", l.Path, pageLimit)
		}
		if l.Page == 0 {
			l.Page = pageLimit
		}
		if l.Each == "" {
			lists[l.Path] = true
		}
	}
	return errs
}

// called names the row in messages.
func (r *Row) called() string {
	if r.ID != "" {
		return r.ID
	}
	return r.Call
}

func (g *Group) checkRow(r *Row, fixture bool, known, readOnly map[string]bool) (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !callForm.MatchString(r.Call) {
		bad("call %q: want METHOD /path, with the query in query", r.Call)
	} else if _, err := url.PathUnescape(r.Path()); err != nil {
		bad("call %q: %w", r.Call, err)
	}
	if r.At != "" && !slices.Contains(Services, r.At) {
		bad("at %q: want one of %v", r.At, Services)
	}
	switch {
	case fixture && (r.ID != "" || r.Source != "" || r.Shows != "" || r.ReadOnly || r.Departure != "" || r.Pending):
		bad("a row of setup has no id, source, shows, read-only, departure or pending")
	case !fixture && (!strings.HasPrefix(r.ID, g.Name+".") || r.Source == "" || r.Shows == ""):
		bad("want id (%s.NAME), source and shows", g.Name)
	}
	safe := r.Method() == http.MethodGet || r.Method() == http.MethodHead
	if r.ReadOnly && !safe {
		bad("read-only is for GET and HEAD")
	}
	if r.Body != nil && r.Raw != nil || safe && (r.Body != nil || r.Raw != nil) {
		bad("want one of body and raw, and neither with GET and HEAD")
	}
	if r.Within < 0 || r.Within > maxWithin || r.Within > 0 && !safe {
		bad("within is 1 to %d seconds, for GET and HEAD", maxWithin)
	}
	if (r.Departure == "") != (r.Ours == nil) {
		bad("departure and ours come together: the item in docs/triton.md, and what Rutter answers")
	}
	if fixture && len(r.Status) == 0 {
		r.Status = Statuses{http.StatusOK}
	}
	errs = append(errs, r.Expect.check()...)
	if r.Ours != nil {
		errs = append(errs, r.Ours.check()...)
	}
	for name := range r.Capture {
		if !valueName.MatchString(name) {
			bad("the value %q: want small letters, digits and _", name)
		}
	}
	for _, name := range r.uses() {
		if !known[name] {
			bad("$(%s) has no value: it stands in values, or an earlier row captures it", name)
		} else if r.ReadOnly && !readOnly[name] {
			bad("$(%s) comes from a row that is not read-only, which a foreign server is not sent", name)
		}
	}
	return errs
}

func (e *Expect) check() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(e.Status) == 0 {
		bad("want a status")
	}
	for _, s := range e.Status {
		if s < 100 || s > 599 {
			bad("the status %d is none of HTTP", s)
		}
	}
	if e.Code != "" && e.Answer != nil || e.Code == "" && (e.Message != nil || e.Errors != nil) {
		bad("a refusal has code, message and errors; any other answer has answer")
	}
	if err := checkMatcher(e.Answer); err != nil {
		bad("answer: %w", err)
	}
	if err := checkMatcher(e.Message); err != nil {
		bad("message: %w", err)
	}
	for _, element := range e.Errors {
		if err := checkMatcher(element); err != nil {
			bad("errors: %w", err)
		}
	}
	for _, v := range slices.Sorted(maps.Values(e.Got)) {
		if err := checkMatcher(v); err != nil {
			bad("answer-headers: %w", err)
		}
	}
	return errs
}
