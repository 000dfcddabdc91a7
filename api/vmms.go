package api

import (
	"encoding/json"
	"io"
	"net/http"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/backend"
	"rutter/api/internal/nodes"
	"rutter/api/internal/rest"
	"rutter/api/vmm"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections"
)

// vmmRoutes are the paths for doorbells of VMMs and for calls to them.
type vmmRoutes struct {
	store        backend.Store
	read         *backend.Reader
	service      *vmm.Service // nil: this server calls no compute nodes
	guard        *guard.Guard
	acknowledged *rest.Acknowledged
}

func (m *vmmRoutes) routes() []rest.Route {
	return []rest.Route{
		// Omicron's agents report with PUT. The body is ignored.
		{Method: "PUT", Pattern: "/vmms/{id}", Serve: m.ring(http.StatusNoContent)},
		{Method: "POST", Pattern: "/vmms/{id}/doorbell", Serve: m.ring(http.StatusAccepted)},
		{Method: "PUT", Pattern: "/vmms/{id}/state", Serve: m.setState},
		{Method: "POST", Pattern: "/vmms/{id}/register", Serve: m.register},
		{Method: "POST", Pattern: "/vmms/{id}/unregister", Serve: m.unregister},
	}
}

// target returns the service, and the VMM of the path, by its id or its VM's name.
func (m *vmmRoutes) target(w http.ResponseWriter, r *http.Request) (*vmm.Service, log.UUID, error) {
	if m.service == nil {
		return nil, log.UUID{}, rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "ask a server of a cluster", "this server asks no compute nodes")
	}
	found, err := m.read.Named(w, r, rest.Parameters{}, log.KindVMM, r.PathValue("id"))
	if err != nil {
		return nil, log.UUID{}, err
	}
	return m.service, uuidOf(found.ID), nil
}

// ring answers POST /vmms/UUID/doorbell, and PUT /vmms/UUID of older agents. It answers
// at once and ignores the body, which may be of any version.
func (m *vmmRoutes) ring(status int) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		service, id, err := m.target(w, r)
		if err != nil {
			return err
		}
		p, err := rest.Query(r, "cn")
		if err != nil {
			return err
		}
		var cn log.UUID
		if p.Has("cn") {
			found, err := m.read.Named(w, r, rest.Parameters{}, log.KindServer, p.Text("cn"))
			if err != nil {
				return rest.OfParameter("cn", err)
			}
			cn = uuidOf(found.ID)
		}
		if !m.ringsOwn(r, id, cn) {
			return rest.NotFound("vmm")
		}
		_, _ = io.Copy(io.Discard, r.Body) // so that the connection can be reused
		if err := service.Ring(id, cn); err != nil {
			return nodes.VMMError(err)
		}
		w.WriteHeader(status)
		return nil
	}
}

// setState answers PUT /vmms/UUID/state: it sends Omicron's body on to the CN.
func (m *vmmRoutes) setState(w http.ResponseWriter, r *http.Request) error {
	service, id, err := m.target(w, r)
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
	service, id, err := m.target(w, r)
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
	service, id, err := m.target(w, r)
	if err != nil {
		return err
	}
	outcome, err := service.Unregister(r.Context(), id, m.guard.Actor(r))
	return m.answerOutcome(w, r, outcome, err)
}

func (m *vmmRoutes) answerOutcome(w http.ResponseWriter, r *http.Request, outcome vmm.Outcome, err error) error {
	if err != nil {
		return nodes.VMMError(err)
	}
	m.acknowledged.Note(outcome.Seq)
	rest.SetSeq(w, outcome.Seq)
	rest.WriteJSON(w, r, http.StatusOK, outcome)
	return nil
}

// ringsOwn decides whether an identity may ring for a VMM: a CN may for VMMs on itself.
func (m *vmmRoutes) ringsOwn(r *http.Request, vmm, said log.UUID) bool {
	g := guard.GrantOf(r)
	if g.Decision != matrix.Own {
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
