package api

import (
	"net/http"
	"sync"

	"rutter/api/internal/openapi"
	"rutter/api/internal/rest"
)

// describedRoutes answer what the API is.
type describedRoutes struct {
	// document makes the OpenAPI document, once.
	document func() ([]byte, error)
}

// newDescribed makes the document when it is first asked for: the table of routes is not
// complete before.
func newDescribed(version string, endpoints func() []openapi.Endpoint) *describedRoutes {
	return &describedRoutes{document: sync.OnceValues(func() ([]byte, error) { return openapi.Document(version, endpoints()) })}
}

func (d *describedRoutes) routes() []rest.Route {
	return []rest.Route{{Method: "GET", Pattern: "/openapi.json", Serve: d.get}}
}

// get answers GET /openapi.json.
func (d *describedRoutes) get(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r); err != nil {
		return err
	}
	document, err := d.document()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(document, '\n')) // an error is the client's, who has gone
	return nil
}
