package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/backend"
	"rutter/api/rest"
	"rutter/api/vmm"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// maxRequests bounds the requests that wait until a subscriber is written to.
const maxRequests = 64

var errRequestsWait = errors.New("api: too many requests wait for the compute node's connection")

// connect has the CN of this stream be asked and heard about its VMs, until its
// line is closed.
func (u *subscriber) connect() {
	if u.s.cfg.VMMs == nil {
		return
	}
	u.line = u.s.cfg.VMMs.Connect(u.hello.CN, u.hello.Abilities&feed.AnswersRequests != 0, u.request)
}

// request has the CN asked at its next turn, which is at once.
func (u *subscriber) request(m *feed.Request) error {
	u.askedMu.Lock()
	if len(u.requests) >= maxRequests {
		u.askedMu.Unlock()
		return errRequestsWait
	}
	u.requests = append(u.requests, m)
	u.askedMu.Unlock()
	u.wake(wakeRequest)
	return nil
}

// sendRequests sends what the CN is asked.
func (u *subscriber) sendRequests() error {
	u.askedMu.Lock()
	requests := u.requests
	u.requests = nil
	u.askedMu.Unlock()
	for _, m := range requests {
		if err := u.send(m); err != nil {
			return err
		}
	}
	return nil
}

// told takes what the CN says of its VMs.
func (u *subscriber) told(m feed.Message) {
	if u.line == nil {
		return
	}
	switch m := m.(type) {
	case *feed.Response:
		u.line.Answer(m)
	case *feed.Ring:
		u.line.Ring(m)
	case *feed.Inventory:
		u.line.Report(m)
	}
}

// codeUnreachable is the answer when a CN cannot be asked.
const codeUnreachable = "ComputeNodeUnreachable" // 504

// vmmRoutes are the paths on which VMMs are rung for and told what to do.
type vmmRoutes struct {
	store    backend.Store
	service  *vmm.Service // nil: this server asks no compute nodes
	guard    *guard.Guard
	answered *rest.Acknowledged
}

func (m *vmmRoutes) routes() []rest.Route {
	return []rest.Route{
		// as Omicron's agents report, whatever the body says
		{Method: "PUT", Pattern: "/vmms/{id}", Serve: m.ring(http.StatusNoContent)},
		{Method: "POST", Pattern: "/vmms/{id}/doorbell", Serve: m.ring(http.StatusAccepted)},
		{Method: "PUT", Pattern: "/vmms/{id}/state", Serve: m.setState},
		{Method: "POST", Pattern: "/vmms/{id}/register", Serve: m.register},
		{Method: "POST", Pattern: "/vmms/{id}/unregister", Serve: m.unregister},
	}
}

// target returns the service, and the VMM of the path.
func (m *vmmRoutes) target(r *http.Request) (*vmm.Service, log.UUID, error) {
	if m.service == nil {
		return nil, log.UUID{}, rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "ask a server of a cluster", "this server asks no compute nodes")
	}
	text, err := kindOf(log.KindVMM).id(r)
	if err != nil {
		return nil, log.UUID{}, err
	}
	return m.service, uuidOf(text), nil
}

// ring answers POST /vmms/UUID/doorbell, and PUT /vmms/UUID of older agents: at
// once, and without a look at the body, which may be of any version.
func (m *vmmRoutes) ring(status int) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		service, id, err := m.target(r)
		if err != nil {
			return err
		}
		p, err := rest.Query(r, "cn")
		if err != nil {
			return err
		}
		var cn log.UUID
		if p.Has("cn") {
			if cn, err = log.ParseUUID(p.Text("cn")); err != nil {
				return rest.BadParameter("cn", log.ElementInvalid, "send the UUID of the compute node that rings, or leave it out", "%v", err)
			}
		}
		if !m.ringsOwn(r, id, cn) {
			return rest.NotFound("vmm")
		}
		_, _ = io.Copy(io.Discard, r.Body) // so that the connection can be used again
		if err := service.Ring(id, cn); err != nil {
			return vmmError(err)
		}
		w.WriteHeader(status)
		return nil
	}
}

// setState answers PUT /vmms/UUID/state: Omicron's body, sent on to the CN.
func (m *vmmRoutes) setState(w http.ResponseWriter, r *http.Request) error {
	service, id, err := m.target(r)
	if err != nil {
		return err
	}
	body, err := rest.ReadBody(r)
	if err != nil {
		return err
	}
	if !json.Valid(body) || len(body) > feed.MaxCall {
		return rest.BadParameter("body", log.ElementInvalid, `send {"state":{"type":"running"}}; stopped, reboot and migration_target are the others`, "the body is not one JSON text of at most %d bytes", feed.MaxCall)
	}
	outcome, err := service.SetState(r.Context(), id, body, m.guard.Actor(r))
	return m.answerOutcome(w, r, outcome, err)
}

// register answers POST /vmms/UUID/register.
func (m *vmmRoutes) register(w http.ResponseWriter, r *http.Request) error {
	service, id, err := m.target(r)
	if err != nil {
		return err
	}
	object, _, err := readObject(r, log.KindVMM)
	if err != nil {
		return err
	}
	in := object.(*log.VMM)
	if in.InstanceID.IsZero() || in.SledID.IsZero() {
		return rest.BadParameter("sled_id", log.ElementMissing, `send {"instance_id":"UUID of the VM","sled_id":"UUID of the compute node"}`, "instance_id or sled_id is missing")
	}
	outcome, err := service.Register(r.Context(), id, in.InstanceID, in.SledID, m.guard.Actor(r))
	return m.answerOutcome(w, r, outcome, err)
}

// unregister answers POST /vmms/UUID/unregister.
func (m *vmmRoutes) unregister(w http.ResponseWriter, r *http.Request) error {
	service, id, err := m.target(r)
	if err != nil {
		return err
	}
	outcome, err := service.Unregister(r.Context(), id, m.guard.Actor(r))
	return m.answerOutcome(w, r, outcome, err)
}

func (m *vmmRoutes) answerOutcome(w http.ResponseWriter, r *http.Request, outcome vmm.Outcome, err error) error {
	if err != nil {
		return vmmError(err)
	}
	m.answered.Note(outcome.Seq)
	backend.SetSeq(w, outcome.Seq)
	rest.WriteJSON(w, r, http.StatusOK, outcome)
	return nil
}

// vmmError turns an error of package vmm into an answer. What a CN answers to a
// bad request is passed on as it is.
func vmmError(err error) error {
	var answer *vmm.AnswerError
	switch {
	case errors.As(err, &answer) && answer.Status >= 400 && answer.Status < 500:
		return rest.Fail(answer.Status, answer.Code, "", "%s", answer.Message)
	case errors.As(err, &answer):
		return rest.Fail(http.StatusBadGateway, codeUnreachable, "try again; see the agent's log", "%v", err)
	case errors.Is(err, vmm.ErrUnknown):
		return rest.NotFound("vmm")
	case errors.Is(err, vmm.ErrBusy):
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeOverloaded, "ring again later", "%v", err)
	case errors.Is(err, vmm.ErrUnreachable):
		return rest.Fail(http.StatusGatewayTimeout, codeUnreachable, "read the VMM before trying again: it may have been done", "%v", err)
	}
	return err
}

// ringsOwn decides whether who asks may ring for a VMM: a CN for those on it.
func (m *vmmRoutes) ringsOwn(r *http.Request, vmm, said log.UUID) bool {
	g := guard.GrantOf(r)
	if g.Answer != matrix.Own {
		return true
	}
	if !said.IsZero() && said != g.Who.UUID {
		return false
	}
	own := false
	m.store.View(func(state *projections.State, _ log.Cursor) {
		rec, known := state.Get(log.KindVMM, vmm.String())
		own = known && g.Sees(state, rec.Object) && rec.Object.(*log.VMM).SledID == g.Who.UUID
	})
	return own
}
