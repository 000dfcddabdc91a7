package api

import (
	"net/http"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
)

// trace answers GET /trace?from=VM&to=VM|IP: why one can, or cannot, reach the
// other (see desired.Trace), with how far the CNs of both are; with at= why
// it could then, of which nobody knows how far they were.
func (s *Server) trace(w http.ResponseWriter, r *http.Request) error {
	p, err := query(r, "from", "to", "at")
	if err != nil {
		return err
	}
	for _, needed := range [...]string{"from", "to"} {
		if p.text(needed) == "" {
			return badParameter(needed, log.ElementMissing, "send ?from=VM&to=VM or IP; a VM is a UUID, an alias, or the MAC of its NIC", "%s is missing", needed)
		}
	}
	if err := s.fresh(r, p); err != nil {
		return err
	}
	if p.has("at") {
		return s.traceAt(w, r, p)
	}
	var t desired.Trace
	s.view(w, func(state *projections.State) { t = desired.NewTrace(state, p.text("from"), p.text("to")) })
	sessions, err := s.everywhere(r.Context(), s.store.Head().Seq)
	if err != nil { // without a leader, what this server knows itself
		sessions = nil
		for _, a := range s.cns.all() {
			sessions = append(sessions, a.form(s.store.Head().Seq, ""))
		}
	}
	t.Judge(func(cn log.UUID) desired.Far {
		for i := range sessions {
			if f := &sessions[i]; f.CN == cn {
				return desired.Far{
					Known: true, Alive: !f.Gone, Applied: f.Applied, Programmed: f.Programmed, Failing: f.Failing,
					Differs: f.Mismatches > 0 && !f.DigestOK,
				}
			}
		}
		return desired.Far{}
	})
	writeJSON(w, r, http.StatusOK, t)
	return nil
}

func (s *Server) traceAt(w http.ResponseWriter, r *http.Request, p parameters) error {
	seq, err := s.place(p, "at")
	if err != nil {
		return err
	}
	t, err := desired.TraceOf(p.text("from"), p.text("to"), func(want desired.TraceWant) (*projections.State, error) {
		part := PastPart{CNs: want.CNs, Mentions: want.Mentions, Whole: want.Whole}
		for _, mac := range want.NICs {
			part.Objects = append(part.Objects, PastObject{log.KindNIC, mac.String()})
		}
		return s.pastState(r.Context(), part, seq)
	})
	if err != nil {
		return err
	}
	t.AsOf(seq)
	setSeq(w, seq)
	writeJSON(w, r, http.StatusOK, t)
	return nil
}
