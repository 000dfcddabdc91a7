package api

import (
	"encoding/json"
	"net/http"

	"rutter/api/rest"
	"rutter/log"
)

// Bounds of GET /log/history.
const (
	historyLines    = 1000 // in an answer, if the query names no limit
	maxHistoryLines = 10_000
)

// getHistory answers GET /log/history?kind=&object=: the entries about one
// object as lines of JSON, found by the index and not by reading the log.
func (s *Server) getHistory(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.Query(r, "kind", "object", "after", "limit")
	if err != nil {
		return err
	}
	if s.cfg.Past == nil {
		return rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "use GET /log?kind=KIND&object=ID", "this server has no index of the past")
	}
	kind, err := log.ParseKind(p.Text("kind"))
	if err != nil {
		return rest.BadParameter("kind", log.ElementInvalid, "send a kind of object, such as nic", "%v", err)
	}
	if p.Text("object") == "" {
		return rest.BadParameter("object", log.ElementMissing, "send the id of the object, as the log has it", "object is missing")
	}
	after, err := seqParameter(r.Context(), s.store, p, "after")
	if err != nil {
		return err
	}
	limit, err := p.Number("limit", historyLines, 1, maxHistoryLines)
	if err != nil {
		return err
	}
	if err := s.fresh(r, p); err != nil {
		return err
	}
	var seqs []log.Seq
	if err := s.guard.Scan(r.Context(), func() error {
		seqs, err = s.cfg.Past.HistoryOf(r.Context(), PastObject{kind, p.Text("object")}, after, int(limit))
		return err
	}); err != nil {
		return err
	}
	s.guard.AccountsOf(r.Context()).Look(len(seqs))
	setPlace(w, s.store.Head())
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	out := json.NewEncoder(w)
	for _, seq := range seqs {
		entries, err := s.store.Entries(seq-1, 1)
		if err != nil || len(entries) == 0 {
			return nil // the floor has passed it meanwhile
		}
		if err := out.Encode(entries[0]); err != nil {
			return nil // the reader is gone
		}
	}
	return nil
}
