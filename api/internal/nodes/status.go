package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"rutter/api/feedserver"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
	"rutter/projections/desired"
)

// NodeStatus is what is known of a CN in an answer.
type NodeStatus struct {
	CN       log.UUID `json:"cn_uuid"`
	Hostname string   `json:"hostname,omitempty"`
	Seq      log.Seq  `json:"seq"`     // the head of this server
	Session  *Session `json:"session"` // null: none since the leader was elected
	// Report is what the CN says of itself, and Kernel what its kernel has of one NIC: only
	// if they were asked for.
	Report *desired.NodeReport `json:"report,omitempty"`
	Kernel *desired.KernelView `json:"kernel,omitempty"`
	// Unknown says why what was asked for is not there.
	Unknown string `json:"unknown,omitempty"`
}

// status answers GET /cns/UUID/status.
func (s *Routes) status(w http.ResponseWriter, r *http.Request) error {
	cn, err := s.pathCN(w, r)
	if err != nil {
		return err
	}
	p, err := rest.Query(r, "ask", "nic")
	if err != nil {
		return err
	}
	ask, err := p.Flag("ask")
	if err != nil {
		return err
	}
	var nic log.MAC
	if p.Has("nic") {
		if nic, err = log.ParseMAC(p.Text("nic")); err != nil {
			return rest.BadParameter("nic", log.ElementInvalid, "send the MAC of one of its NICs", "%v", err)
		}
	}
	head := s.store.Head().Seq
	known := NodeStatus{CN: cn, Seq: head, Session: s.sessionOf(r.Context(), cn, head)}
	s.store.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok := state.Get(log.KindServer, cn.String()); ok {
			known.Hostname = rec.Object.(*log.Server).Hostname
		}
	})
	if ask || !nic.IsZero() {
		if err := s.askNode(r.Context(), &known, ask, nic); err != nil {
			known.Unknown = err.Error()
		}
	}
	rest.SetSeq(w, head)
	rest.WriteJSON(w, r, http.StatusOK, known)
	return nil
}

// sessionOf returns the newest session of a CN with any server, nil if there is none.
func (s *Routes) sessionOf(ctx context.Context, cn log.UUID, head log.Seq) *Session {
	if a, here := s.cfg.Feed.Session(cn); here {
		f := s.dated(s.named(formOfSession(&a, head, s.cfg.ServerID())))
		return &f
	}
	all, err := s.Everywhere(ctx, head)
	if err != nil {
		return nil
	}
	for i := range all {
		if all[i].CN == cn {
			return &all[i]
		}
	}
	return nil
}

// askNode asks a CN for its report and for its kernel's view of a NIC. It takes at most
// twice kernelTime.
func (s *Routes) askNode(ctx context.Context, known *NodeStatus, report bool, nic log.MAC) error {
	select {
	case s.kernelAsks <- struct{}{}:
		defer func() { <-s.kernelAsks }()
	default:
		return fmt.Errorf("this server asks compute nodes for %d others, as many as it may at once: try again", maxKernelAsks)
	}
	if report {
		got, err := s.reportOf(ctx, known.CN)
		if err != nil {
			return err
		}
		known.Report = got
	}
	if nic.IsZero() {
		return nil
	}
	view, err := s.kernelOf(ctx, &desired.TraceKernel{CN: known.CN, NIC: nic, Query: desired.KernelQuery{NIC: nic}})
	known.Kernel = view
	return err
}

func (s *Routes) reportOf(ctx context.Context, cn log.UUID) (*desired.NodeReport, error) {
	answer, err := s.askOnce(ctx, cn, desired.ReportPath)
	if err != nil {
		return nil, err
	}
	return reportFrom(cn, answer)
}

// reportFrom decodes an agent's answer about itself. It trusts nothing of it.
func reportFrom(cn log.UUID, answer *feed.Response) (*desired.NodeReport, error) {
	if err := refusalOf(cn, "what it says of itself", answer); err != nil {
		return nil, err
	}
	r := new(desired.NodeReport)
	if err := json.Unmarshal(answer.Body, r); err != nil {
		return nil, fmt.Errorf("the agent of CN %s answers with what is no report", cn)
	}
	if r.CN != cn {
		return nil, fmt.Errorf("the agent of CN %s answers as another CN, %s", cn, r.CN)
	}
	r.Bound(feedserver.Printable)
	return r, nil
}

// refusalOf is the error of an agent's answer that is not OK.
func refusalOf(cn log.UUID, what string, answer *feed.Response) error {
	if answer.Status == http.StatusOK {
		return nil
	}
	var said struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(answer.Body, &said) != nil || said.Message == "" {
		return fmt.Errorf("the agent of CN %s cannot be asked for %s (status %d): upgrade it", cn, what, answer.Status)
	}
	return fmt.Errorf("CN %s: %s", cn, feedserver.Printable(said.Message, desired.MaxKernelText))
}
