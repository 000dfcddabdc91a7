package api

import (
	"net/http"
	"slices"
	"strings"

	"rutter/api/backend"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections/naming"
)

// maxNamedValues bounds the names in place of ids among the filters of one list: each is
// looked up, in a past state if the list is of one.
const maxNamedValues = 16

// refersTo are the kinds that the filters of a kind's lists refer to.
func (k *kindRoute) refersTo(p rest.Parameters) map[string]log.Kind {
	refers := map[string]log.Kind{}
	for _, f := range log.FieldDocs(k.kind) {
		if f.Refers != 0 && k.filters[f.Name] != nil {
			refers[f.Name] = f.Refers
		}
	}
	if k.kind == log.KindNIC {
		refers["belongs_to_uuid"] = log.KindVM
		if p.Text("belongs_to_type") == "server" {
			refers["belongs_to_uuid"] = log.KindServer
		}
	}
	return refers
}

// byNames returns the query of a list with ids in place of the names of objects that its
// filters refer to.
func (o *objectRoutes) byNames(w http.ResponseWriter, r *http.Request, p rest.Parameters, k *kindRoute) (rest.Parameters, error) {
	refers, names := k.refersTo(p), 0
	for _, filter := range k.filterNames() {
		kind, refers := refers[filter]
		if !refers || !p.Has(filter) {
			continue
		}
		values := strings.Split(p.Text(filter), ",")
		before := slices.Clone(values)
		for i, value := range values {
			if _, is := naming.IsID(kind, value); is || value == "" {
				continue // an empty one is refused with the other filters
			}
			if names++; names > maxNamedValues {
				return p, rest.BadParameter(filter, log.ElementInvalid, "send ids, or fewer names", "a list has filters by %d names at most", maxNamedValues)
			}
			m, err := o.read.Named(w, r, p, kind, value)
			if err != nil {
				return p, rest.OfParameter(filter, err)
			}
			values[i] = m.ID
		}
		if !slices.Equal(values, before) {
			p = p.With(filter, strings.Join(values, ","))
		}
	}
	w.Header().Del(backend.HeaderID) // a list is not of the object
	return p, nil
}
