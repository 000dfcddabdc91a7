package api

import (
	"net/http"

	"rutter/api/rest"
	"rutter/log"
	"rutter/projections"
)

// trace answers GET /trace?from=VM&to=VM|IP: why one can, or cannot, reach the
// other (see projections.Trace), with how far the CNs of both are; with at= why
// it could then, of which nobody knows how far they were.
func (l *lookupRoutes) trace(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.Query(r, "from", "to", "at")
	if err != nil {
		return err
	}
	for _, needed := range [...]string{"from", "to"} {
		if p.Text(needed) == "" {
			return rest.BadParameter(needed, log.ElementMissing, "send ?from=VM&to=VM or IP; a VM is a UUID, an alias, or the MAC of its NIC", "%s is missing", needed)
		}
	}
	if err := l.read.fresh(r, p); err != nil {
		return err
	}
	if p.Has("at") {
		return l.traceAt(w, r, p)
	}
	var t projections.Trace
	l.read.view(w, func(state *projections.State) { t = state.Trace(p.Text("from"), p.Text("to")) })
	sessions, err := l.sessions.everywhere(r.Context(), l.read.store.Head().Seq)
	if err != nil { // without a leader, what this server knows itself
		sessions = l.sessions.here(l.read.store.Head().Seq, "")
	}
	t.Judge(func(cn log.UUID) projections.Far {
		for i := range sessions {
			if f := &sessions[i]; f.CN == cn {
				return projections.Far{
					Known: true, Alive: !f.Gone, Applied: f.Applied, Programmed: f.Programmed, Failing: f.Failing,
					Differs: f.Mismatches > 0 && !f.DigestOK,
				}
			}
		}
		return projections.Far{}
	})
	rest.WriteJSON(w, r, http.StatusOK, t)
	return nil
}

func (l *lookupRoutes) traceAt(w http.ResponseWriter, r *http.Request, p rest.Parameters) error {
	seq, err := l.read.place(p, "at")
	if err != nil {
		return err
	}
	t, err := projections.TraceOf(p.Text("from"), p.Text("to"), func(want projections.TraceWant) (*projections.State, error) {
		part := PastPart{CNs: want.CNs, Mentions: want.Mentions, Whole: want.Whole}
		for _, mac := range want.NICs {
			part.Objects = append(part.Objects, PastObject{log.KindNIC, mac.String()})
		}
		return l.read.pastState(r.Context(), part, seq)
	})
	if err != nil {
		return err
	}
	t.AsOf(seq)
	rest.SetSeq(w, seq)
	rest.WriteJSON(w, r, http.StatusOK, t)
	return nil
}
