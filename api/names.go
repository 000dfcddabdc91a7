package api

import (
	"net/http"
	"strings"

	"rutter/api/backend"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections/naming"
)

// nameRoutes answer which objects a name means.
type nameRoutes struct{ read *backend.Reader }

func (n *nameRoutes) routes() []rest.Route {
	return []rest.Route{{Method: "GET", Pattern: "/names", Serve: n.get}}
}

// get answers GET /names?name=TEXT&kind=KIND,…: the objects that the request may see and
// that TEXT names.
func (n *nameRoutes) get(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.Query(r, "name", "kind", "at")
	if err != nil {
		return err
	}
	text := p.Text("name")
	if text == "" || len(text) > naming.MaxText {
		return rest.BadParameter("name", log.ElementInvalid, "send the name, the address or the beginning of the id of an object", "a name has 1 to %d bytes, and this has %d", naming.MaxText, len(text))
	}
	kinds := naming.Kinds
	if p.Has("kind") {
		kinds = nil
		for name := range strings.SplitSeq(p.Text("kind"), ",") {
			kind, err := log.ParseKind(name)
			if err != nil || len(kinds) == len(log.Kinds()) {
				return rest.BadParameter("kind", log.ElementInvalid, "send kinds of objects, such as nic, each once", "got %q", name)
			}
			kinds = append(kinds, kind)
		}
	}
	if err := n.read.Fresh(r, p); err != nil {
		return err
	}
	found, err := n.read.Find(w, r, p, kinds, text)
	if err != nil {
		return err
	}
	if found.Matches == nil {
		found.Matches = []naming.Match{}
	}
	rest.WriteJSON(w, r, http.StatusOK, found)
	return nil
}
