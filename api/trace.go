package api

import (
	"net/http"
	"time"

	"rutter/api/backend"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
)

// Times between two looks at a kernel, in milliseconds.
const (
	defaultWatch = 1000
	maxWatch     = 10_000
)

// trace answers GET /trace?from=VM&to=VM|IP: why one can or cannot reach the other (see
// desired.Trace), with the progress of both CNs. With at= it answers for the past,
// without the CNs' progress, which is not recorded.
func (l *lookupRoutes) trace(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.Query(r, "from", "to", "at", "kernels", "watch_ms")
	if err != nil {
		return err
	}
	for _, needed := range [...]string{"from", "to"} {
		if p.Text(needed) == "" {
			return rest.BadParameter(needed, log.ElementMissing, "send ?from=VM&to=VM or IP; a VM is a UUID, an alias, a MAC or an address of its NIC, or the beginning of an id", "%s is missing", needed)
		}
	}
	kernels, err := p.Flag("kernels")
	if err != nil {
		return err
	}
	watch, err := p.Number("watch_ms", defaultWatch, 0, maxWatch)
	if err != nil {
		return err
	}
	if kernels && p.Has("at") {
		return rest.BadParameter("kernels", log.ElementInvalid, "leave out at, or kernels", "what kernels had in the past is not recorded")
	}
	if err := l.read.Fresh(r, p); err != nil {
		return err
	}
	if p.Has("at") {
		return l.traceAt(w, r, p)
	}
	var t desired.Trace
	l.read.View(w, func(state *projections.State) { t = desired.NewTrace(state, p.Text("from"), p.Text("to")) })
	sessions, err := l.sessions.Everywhere(r.Context(), l.store.Head().Seq)
	if err != nil { // without a leader: the sessions of this server
		sessions = l.sessions.Here(l.store.Head().Seq, "")
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
	if kernels {
		asked := t.Kernels()
		l.kernels.AskKernels(r.Context(), asked, time.Duration(watch)*time.Millisecond)
		t.JudgeKernels(asked)
	}
	rest.WriteJSON(w, r, http.StatusOK, t)
	return nil
}

func (l *lookupRoutes) traceAt(w http.ResponseWriter, r *http.Request, p rest.Parameters) error {
	seq, err := l.read.AtParameter(p, "at")
	if err != nil {
		return err
	}
	t, err := desired.TraceOf(p.Text("from"), p.Text("to"), func(want desired.TraceWant) (*projections.State, error) {
		part := backend.PastPart{CNs: want.CNs, Mentions: want.Mentions, Kinds: []log.Kind{log.KindRouter}, Whole: want.Whole}
		for _, mac := range want.NICs {
			part.Objects = append(part.Objects, backend.PastObject{Kind: log.KindNIC, ID: mac.String()})
		}
		return l.read.PastState(r.Context(), part, seq)
	})
	if err != nil {
		return err
	}
	t.AsOf(seq)
	rest.SetSeq(w, seq)
	rest.WriteJSON(w, r, http.StatusOK, t)
	return nil
}
