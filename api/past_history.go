package api

import (
	"encoding/json"
	"net/http"

	"rutter/api/logserver"
	"rutter/api/rest"
	"rutter/log"
)

// pastRoutes answer for the log's states of before, and for what became of objects.
type pastRoutes struct{ read *stateReader }

func (h *pastRoutes) routes() []rest.Route {
	return []rest.Route{
		{Method: "GET", Pattern: "/log/state", Serve: h.getState},
		{Method: "GET", Pattern: "/log/history", Serve: h.getHistory},
		{Method: "GET", Pattern: "/log/diff", Serve: h.getDiff},
	}
}

// Bounds of GET /log/history.
const (
	historyLines    = 1000 // in an answer, if the query names no limit
	maxHistoryLines = 10_000
)

// getHistory answers GET /log/history?kind=&object=: the entries about one
// object as lines of JSON, found by the index and not by reading the log.
func (h *pastRoutes) getHistory(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.Query(r, "kind", "object", "after", "limit")
	if err != nil {
		return err
	}
	if h.read.past == nil {
		return rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "use GET /log?kind=KIND&object=ID", "this server has no index of the past")
	}
	kind, err := log.ParseKind(p.Text("kind"))
	if err != nil {
		return rest.BadParameter("kind", log.ElementInvalid, "send a kind of object, such as nic", "%v", err)
	}
	if p.Text("object") == "" {
		return rest.BadParameter("object", log.ElementMissing, "send the id of the object, as the log has it", "object is missing")
	}
	after, err := logserver.SeqParameter(r.Context(), h.read.store, p, "after")
	if err != nil {
		return err
	}
	limit, err := p.Number("limit", historyLines, 1, maxHistoryLines)
	if err != nil {
		return err
	}
	if err := h.read.fresh(r, p); err != nil {
		return err
	}
	var seqs []log.Seq
	if err := h.read.guard.Scan(r.Context(), func() error {
		seqs, err = h.read.past.HistoryOf(r.Context(), PastObject{kind, p.Text("object")}, after, int(limit))
		return err
	}); err != nil {
		return err
	}
	h.read.guard.AccountsOf(r.Context()).Look(len(seqs))
	rest.SetCursor(w, h.read.store.Head())
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	out := json.NewEncoder(w)
	for _, seq := range seqs {
		entries, err := h.read.store.Entries(seq-1, 1)
		if err != nil || len(entries) == 0 {
			return nil // the floor has passed it meanwhile
		}
		if err := out.Encode(entries[0]); err != nil {
			return nil // the reader is gone
		}
	}
	return nil
}
