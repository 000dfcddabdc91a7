package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"rutter/agent/link/view"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections/desired"
)

// stream handles the messages of one connection.
type stream struct {
	*follower
	conn    *feed.Conn
	ctx     context.Context // ends with the connection
	current bool            // a bookmark has come
	entries int
	// reporting: a report for a server is being made.
	reporting atomic.Bool
}

// Welcome implements feed.Handler.
func (s *stream) Welcome(m *feed.Welcome) error {
	if err := s.replica.Welcome(m); err != nil {
		return err
	}
	s.becomeFollowing(s.conn)
	s.logger.Info("following", "server", s.server, "head", m.Head.Seq, "cursor", s.replica.at())
	if s.replica.inReset() {
		s.becomeResetting(feed.ResetFirst)
	}
	s.report()
	return nil
}

// Prepare implements feed.Preparer: an entry is decoded while earlier entries are
// folded, so that a catch-up does not take the sum of both times.
func (s *stream) Prepare(m feed.Message) error {
	entry, ok := m.(*feed.Entry)
	if !ok {
		return nil
	}
	if err := entry.Parse(); err != nil {
		return fmt.Errorf("entry %d: %w", entry.Seq, err)
	}
	return nil
}

// Reset implements feed.Handler.
func (s *stream) Reset(m *feed.Reset) error {
	s.becomeResetting(m.Reason)
	s.logger.Warn("reset by the server: everything is compared with what it sends", "reason", m.Reason, "text", m.Text, "head", m.Head)
	return s.replica.Reset(m)
}

// Entry implements feed.Handler.
func (s *stream) Entry(m *feed.Entry) error {
	if s.entries++; s.entries%checkEvery == 0 {
		s.persister.room(s.ctx.Done())
	}
	return s.replica.Entry(m)
}

// Object implements feed.Handler.
func (s *stream) Object(m *feed.Object) error {
	if s.entries++; s.entries%checkEvery == 0 {
		s.persister.room(s.ctx.Done())
	}
	return s.replica.Object(m)
}

// ScopeBegin implements feed.Handler.
func (s *stream) ScopeBegin(m *feed.ScopeBegin) error { return s.replica.ScopeBegin(m) }

// ScopeEnd implements feed.Handler.
func (s *stream) ScopeEnd(m *feed.ScopeEnd) error { return s.replica.ScopeEnd(m) }

// ScopeDropped implements feed.Handler.
func (s *stream) ScopeDropped(m *feed.ScopeDropped) error { return s.replica.ScopeDropped(m) }

// Bookmark implements feed.Handler.
func (s *stream) Bookmark(m *feed.Bookmark) error {
	if err := s.replica.Bookmark(m); err != nil {
		return err
	}
	first := !s.current
	s.current = true
	if first {
		s.choose.Fed()
	}
	s.becomeCurrent()
	if local := s.cfg.Local; local != nil {
		if first {
			local.Connected(s.ctx, s.conn)
		}
		local.Advanced()
	}
	for _, again := range s.replica.takeRequests() {
		s.conn.Again(again)
	}
	s.report()
	return nil
}

// Request implements feed.RequestHandler.
func (s *stream) Request(m *feed.Request) error {
	if s.answersHold(m) {
		s.report()
		return nil
	}
	if s.answersKernel(m) || s.answersReport(m) {
		return nil
	}
	if local := s.cfg.Local; local != nil {
		local.Request(s.ctx, s.conn, m)
		return nil
	}
	s.respond(&feed.Response{Number: m.Number, Status: http.StatusNotImplemented})
	return nil
}

var (
	_ feed.Handler        = (*stream)(nil)
	_ feed.RequestHandler = (*stream)(nil)
	_ feed.Preparer       = (*stream)(nil)
)

// answerTime bounds the wait for room in the send queue.
const answerTime = time.Second

// answersHold handles requests of servers about the hold. It is false if a request is
// about something else:
//
//	GET /hold          Hold, or 404
//	POST /hold/accept  {"hold":ID}; Hold as it was, 404 if there is none, 409 if it is another
func (s *stream) answersHold(m *feed.Request) bool {
	response := &feed.Response{Number: m.Number, Status: http.StatusOK}
	var h Hold
	var err error
	switch m.Method + " " + m.Path {
	case "GET /hold":
		if now := s.replica.holding(); now != nil {
			h = *now
		} else {
			err = ErrNoHold
		}
	case "POST /hold/accept":
		var in struct {
			Hold string `json:"hold"`
		}
		if err = json.Unmarshal(m.Body, &in); err == nil {
			h, err = s.replica.accept(in.Hold)
		}
	default:
		return false
	}
	var body any = h
	if err != nil {
		response.Status, body = http.StatusBadRequest, map[string]string{"code": "BadRequest", "message": err.Error()}
		switch {
		case errors.Is(err, ErrNoHold):
			response.Status, body = http.StatusNotFound, map[string]string{"code": "ResourceNotFound", "message": err.Error()}
		case errors.Is(err, ErrOtherHold):
			response.Status, body = http.StatusConflict, map[string]string{"code": "OtherHold", "message": "it holds " + h.ID + " now: " + err.Error()}
		}
	}
	if response.Body, err = json.Marshal(body); err != nil {
		response.Status = http.StatusInternalServerError
	}
	s.respond(response)
	return true
}

// viewTime bounds the reading of the kernel for one request.
const viewTime = 2 * time.Second

// answersKernel handles a server's question what the kernel has on the way from a NIC of
// this node (desired.KernelQuery). It is false if a request is about something else. The
// kernel is read beside the follower.
func (s *stream) answersKernel(m *feed.Request) bool {
	q, is, err := desired.ParseKernelQuery(m.Path)
	if !is || m.Method != http.MethodGet {
		return false
	}
	response := &feed.Response{Number: m.Number, Status: http.StatusNotImplemented}
	refuse := func(status uint16, code, message string) {
		response.Status = status
		response.Body, _ = json.Marshal(map[string]string{"code": code, "message": message}) // texts can be marshalled
		s.respond(response)
	}
	switch {
	case err != nil:
		refuse(http.StatusBadRequest, "BadRequest", err.Error())
		return true
	case s.cfg.View == nil:
		refuse(http.StatusNotImplemented, "NotHere", "this agent programs no kernel that can be read")
		return true
	}
	r, ok := s.viewOf(q)
	if !ok {
		refuse(http.StatusNotFound, "ResourceNotFound", "its agent has no NIC "+q.NIC.String()+" of a VM on a vnet")
		return true
	}
	go func() {
		ctx, cancel := context.WithTimeout(s.ctx, viewTime)
		defer cancel()
		v, err := s.cfg.View(ctx, r)
		if err != nil {
			refuse(http.StatusServiceUnavailable, "ServiceUnavailable", err.Error())
			return
		}
		response.Status = http.StatusOK
		if response.Body, err = json.Marshal(v); err != nil || len(response.Body) > feed.MaxCall {
			response.Status, response.Body = http.StatusInsufficientStorage, nil
		}
		s.respond(response)
	}()
	return true
}

// answersReport handles a server's question what this node says of itself. It is false if
// a request is about something else. The report is made beside the follower; while one is
// made, others are refused.
func (s *stream) answersReport(m *feed.Request) bool {
	if m.Path != desired.ReportPath || m.Method != http.MethodGet {
		return false
	}
	refuse := func(status uint16, code, message string) {
		body, _ := json.Marshal(map[string]string{"code": code, "message": message}) // texts can be marshalled
		s.respond(&feed.Response{Number: m.Number, Status: status, Body: body})
	}
	switch {
	case s.cfg.Report == nil:
		refuse(http.StatusNotImplemented, "NotHere", "this agent makes no report")
	case !s.reporting.CompareAndSwap(false, true):
		refuse(http.StatusServiceUnavailable, "ServiceUnavailable", "this node makes a report for another request: try again")
	default:
		go func() {
			defer s.reporting.Store(false)
			ctx, cancel := context.WithTimeout(s.ctx, viewTime)
			defer cancel()
			report := s.cfg.Report(ctx)
			body, err := json.Marshal(report)
			for err == nil && len(body) > feed.MaxCall && len(report.Ports) > 0 {
				report.Ports = report.Ports[:len(report.Ports)/2]
				body, err = json.Marshal(report)
			}
			if err != nil || len(body) > feed.MaxCall {
				refuse(http.StatusInsufficientStorage, "TooLarge", "its report is too large to be sent")
				return
			}
			s.respond(&feed.Response{Number: m.Number, Status: http.StatusOK, Body: body})
		}()
	}
	return true
}

// viewOf adds to a query what the agent has of its NIC: where its link is.
func (s *stream) viewOf(q desired.KernelQuery) (r view.Request, ok bool) {
	s.replica.mu.RLock()
	defer s.replica.mu.RUnlock()
	state := s.replica.state
	row, ok := state.NICRow(q.NIC)
	if !ok || row.CN() != s.cfg.CN || row.Home().Type != log.ScopeVNet || row.NIC().BelongsToType != "zone" {
		return r, false
	}
	net := state.Network(row.Network())
	if net == nil {
		return r, false
	}
	r = view.Request{Query: q, VNet: net.VNetID, VLAN: uint16(net.VLANID), OnDemand: s.isOnDemand(net.VNetID)}
	if vm := state.VM(row.NIC().BelongsToUUID); vm != nil && vm.ServerUUID == s.cfg.CN {
		r.Namespace = vm.Zonename
	}
	return r, true
}

// respond sends a response, if there is room for it soon.
func (s *stream) respond(response *feed.Response) {
	ctx, cancel := context.WithTimeout(s.ctx, answerTime)
	defer cancel()
	_ = s.conn.Send(ctx, response) // a client without a response asks again
}
