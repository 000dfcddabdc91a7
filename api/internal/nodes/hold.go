package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"rutter/api/auth/audit"
	"rutter/api/auth/guard"
	"rutter/api/feedserver"
	"rutter/api/internal/rest"
	"rutter/api/vmm"
	"rutter/log"
	"rutter/log/feed"
)

// What a CN holds back, only the CN knows and decides (SAFETY R2). A server passes on
// the CN's report, and an operator's acceptance to the CN, through the server that has
// its session.

// holdForm is a hold in an answer, in the agent's own form.
type holdForm struct {
	ID    string     `json:"id"`           // empty: its server did not report it
	Was   log.Cursor `json:"was,omitzero"` // the log that the CN continues with; seq 0: its server knew only the cluster
	Log   log.UUID   `json:"log"`          // the cluster whose view is held
	Going uint32     `json:"going"`        // links that it would take away
	Links uint32     `json:"links"`        // of so many
	Names []string   `json:"names"`        // some of them
	Since *time.Time `json:"since,omitempty"`
}

// Bounds of asking CNs what they hold.
const (
	holdTime = 2 * time.Second
	// maxHoldsAsked bounds the CNs of other servers whose details one answer has.
	maxHoldsAsked = 128
	holdAskers    = 16 // at once
)

func holdOf(c *feed.Condition) *holdForm {
	if c.Hold == "" {
		return nil
	}
	return &holdForm{ID: c.Hold, Was: log.Cursor{Cluster: c.Was}, Log: c.Log, Going: c.Going, Links: c.Links, Names: strings.Split(c.Names, "\n")}
}

// bounded returns h with at most the texts that a server keeps of a Condition.
func (h holdForm) bounded() holdForm {
	h.ID = feedserver.Printable(h.ID, feedserver.MaxHoldID)
	if len(h.Names) > 0 {
		h.Names = strings.Split(feedserver.Printable(strings.Join(h.Names, "\n"), feedserver.MaxConditionBytes), "\n")
	}
	return h
}

// fillHolds asks the agents for what the leader does not know: it knows only that there
// is a hold.
func (s *Routes) fillHolds(ctx context.Context, forms []Session) {
	ctx, cancel := context.WithTimeout(ctx, holdTime)
	defer cancel()
	var asking sync.WaitGroup
	defer asking.Wait()
	slots, asked := make(chan struct{}, holdAskers), 0
	for i := range forms {
		f := &forms[i]
		if f.Hold == nil || asked == maxHoldsAsked {
			continue
		}
		if a, here := s.cfg.Feed.Session(f.CN); here {
			if hold := holdOf(&a.Condition); hold != nil {
				f.Hold = hold
			}
			f.Trouble = a.Condition.Trouble
			continue
		}
		asked++
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			var h holdForm
			if err := s.askCN(ctx, f.CN, http.MethodGet, "/hold", nil, &h); err == nil {
				f.Hold = &h
			}
		})
	}
}

// askCN sends a request to an agent on its connection, through the server that has it.
func (s *Routes) askCN(ctx context.Context, cn log.UUID, method, path string, body []byte, out *holdForm) error {
	if s.cfg.VMMs == nil {
		return rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "ask a server of a cluster", "this server asks no compute nodes")
	}
	answer, err := s.cfg.VMMs.AskConnected(ctx, cn, &feed.Request{Method: method, Path: path, Body: body})
	if err != nil {
		return err
	}
	return heldOf(cn, answer, out)
}

// heldOf decodes an agent's answer about its hold. It trusts none of its values.
func heldOf(cn log.UUID, answer *feed.Response, out *holdForm) error {
	if answer.Status == http.StatusOK {
		if err := json.Unmarshal(answer.Body, out); err != nil {
			return rest.Fail(http.StatusBadGateway, CodeUnreachable, "see the agent's log", "the agent of CN %s answers with what is no hold: %v", cn, err)
		}
		*out = out.bounded()
		return nil
	}
	var answered struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	if json.Unmarshal(answer.Body, &answered) != nil || answered.Code == "" {
		return rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "upgrade the agent", "the agent of CN %s does not know what a hold is (status %d)", cn, answer.Status)
	}
	status := int(answer.Status)
	if status < 400 || status > 599 {
		status = http.StatusBadGateway
	}
	return rest.Fail(status, answered.Code, "look at what it holds: rutter cn sessions", "CN %s: %s", cn, answered.Message)
}

// acceptForm is the body of POST /cns/UUID/accept.
type acceptForm struct {
	Hold string `json:"hold"` // ID of a holdForm
}

// accept answers POST /cns/UUID/accept: the CN executes what it holds back, if that is
// the hold in the body.
func (s *Routes) accept(w http.ResponseWriter, r *http.Request) error {
	cn, err := s.pathCN(w, r)
	if err != nil {
		return err
	}
	body, err := rest.ReadBody(r)
	if err != nil {
		return err
	}
	var in acceptForm
	if err := json.Unmarshal(body, &in); err != nil || in.Hold == "" {
		return rest.BadParameter("hold", log.ElementMissing, `send {"hold":"ID"}, as GET /cns names it`, "the body does not name the hold that is accepted")
	}
	if body, err = json.Marshal(in); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), 2*holdTime)
	defer cancel()
	var h holdForm
	err = s.askCN(ctx, cn, http.MethodPost, "/hold/accept", body, &h)
	why := "accepted"
	if err != nil {
		why = "not accepted: " + err.Error()
	}
	who := guard.GrantOf(r).Who
	s.cfg.Guard.Note(audit.Record{Event: audit.Accepted, Actor: who.Actor(), Serial: who.Serial, Remote: r.RemoteAddr, Asked: "hold " + in.Hold[:min(len(in.Hold), log.MaxActorBytes)] + " of CN " + cn.String(), Why: why})
	if errors.Is(err, vmm.ErrUnreachable) {
		return rest.Fail(http.StatusGatewayTimeout, CodeUnreachable, "look at rutter cn sessions before trying again: it may have been done", "%v", err)
	}
	if err != nil {
		return VMMError(err)
	}
	s.cfg.Logger.Warn("a hold was accepted: the compute node takes away what the log lacks", "cn", cn, "hold", h.ID, "going", h.Going, "links", h.Links, "actor", who.Actor())
	rest.WriteJSON(w, r, http.StatusOK, h)
	return nil
}
