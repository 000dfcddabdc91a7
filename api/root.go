package api

import (
	"net/http"
	"strconv"
	"strings"

	"rutter/api/console"
	"rutter/api/internal/rest"
)

// rootForm is the answer to GET /: where to begin.
type rootForm struct {
	Name    string            `json:"name"`
	Version string            `json:"version"`
	Paths   map[string]string `json:"paths"` // by what is there
	Docs    string            `json:"docs"`
}

// root answers GET /: a browser is led to the console, a program gets paths.
func (s *Server) root(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r); err != nil {
		return err
	}
	w.Header().Set("Vary", "Accept")
	if wantsPage(r.Header.Get("Accept")) {
		w.Header().Set("Location", console.Prefix)
		w.WriteHeader(http.StatusFound)
		return nil
	}
	rest.WriteJSON(w, r, http.StatusOK, rootForm{
		Name: "rutter", Version: s.cfg.Version, Docs: "/usr/share/doc/rutter/api.md",
		Paths: map[string]string{
			"console": console.Prefix, "description": "/openapi.json", "ready": "/readyz", "status": "/status", "metrics": "/metrics",
			"cluster": "/cluster", "servers": "/cluster/servers", "log": "/log", "nodes": "/cns",
		},
	})
	return nil
}

// wantsPage reports whether a header Accept names HTML, as browsers do (RFC 9110, section
// 12.5.1), and does not refuse it. A client that takes anything is a program.
func wantsPage(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		media, parameters, _ := strings.Cut(part, ";")
		if strings.TrimSpace(media) != pageMedia {
			continue
		}
		for parameter := range strings.SplitSeq(parameters, ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
			if q, err := strconv.ParseFloat(value, 64); strings.EqualFold(name, "q") && err == nil && q == 0 {
				return false
			}
		}
		return true
	}
	return false
}
