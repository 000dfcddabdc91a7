package napi

import (
	"encoding/json"
	"net/http"
	"slices"

	"rutter/log"
	"rutter/projections"
)

// routerForm is a router object in an answer (spec/napi.md section 3.1; RFD 120).
type routerForm struct {
	UUID        log.UUID      `json:"uuid"`
	Name        string        `json:"name"`
	Networks    []log.UUID    `json:"networks"`
	Family      string        `json:"family"`
	OwnerUUID   log.UUID      `json:"owner_uuid"`
	Description string        `json:"description,omitempty"`
	Addresses   log.Addresses `json:"addresses"` // the router's own, one on each of Networks
	VMUUID      log.UUID      `json:"vm_uuid,omitzero"`
}

func shapeRouter(_ *projections.State, o log.Object) any {
	r := o.(*log.Router)
	return routerForm{r.UUID, r.Name, r.Networks, r.Family, r.OwnerUUID, r.Description, r.Addresses, r.VMUUID}
}

const nounRouter = "router"

func routerTarget(r *http.Request) (target, error) {
	id, err := log.ParseUUID(r.PathValue("uuid"))
	if err != nil {
		return target{}, notFound(nounRouter)
	}
	return target{kind: log.KindRouter, id: id.String(), noun: nounRouter}, nil
}

// routerError gives bad parameters RFD 120's codes.
func routerError(err error) error {
	p := problemOf(err)
	if p.Code != log.CodeInvalidParameters {
		return err
	}
	p.status, p.Code = http.StatusConflict, "InvalidArgument"
	if !slices.ContainsFunc(p.Errors, func(e element) bool { return e.Code != log.ElementMissing }) {
		p.Code = "MissingParameter"
	}
	return p
}

func (s *Service) listRouters(w http.ResponseWriter, r *http.Request) error {
	in, err := readQuery(r, "limit", "name", "networks", "offset", "owner_uuid")
	if err != nil {
		return err
	}
	l := listing{walks: []projections.Walk{{Kind: log.KindRouter}}, shape: shapeRouter}
	l.limit, l.offset = in.page()
	var names []string
	var networks []log.UUID
	var owner log.UUID
	byName := take(in, "name", words, &names)
	byNetwork := take(in, "networks", uuids, &networks)
	byOwner := take(in, "owner_uuid", uuid, &owner)
	l.match = func(_ *projections.State, o log.Object) bool {
		router := o.(*log.Router)
		return (!byName || slices.Contains(names, router.Name)) && (!byOwner || router.OwnerUUID == owner) &&
			(!byNetwork || slices.ContainsFunc(router.Networks, func(u log.UUID) bool { return slices.Contains(networks, u) }))
	}
	if err := in.err(); err != nil {
		return err
	}
	return s.answerList(w, r, l)
}

func takeRouter(in *input, router *log.Router) {
	take(in, "name", text, &router.Name)
	take(in, "description", anyText, &router.Description)
	take(in, "networks", uuids, &router.Networks)
	take(in, "addresses", addrs, &router.Addresses)
	take(in, "owner_uuid", uuid, &router.OwnerUUID)
	take(in, "vm_uuid", uuid, &router.VMUUID)
}

func (s *Service) createRouter(w http.ResponseWriter, r *http.Request) error {
	in, err := s.readInput(r, routerForm{})
	if err != nil {
		return err
	}
	router := new(log.Router)
	in.require("name", "networks")
	takeRouter(in, router)
	take(in, "uuid", uuid, &router.UUID)
	if err := in.err(); err != nil {
		return routerError(err)
	}
	result, err := s.propose(r, log.Op{Action: log.Create, Kind: log.KindRouter, Set: in.names(), Object: router})
	if err != nil {
		return routerError(err)
	}
	return s.answerOne(w, r, log.KindRouter, result.IDs[0], nounRouter, shapeRouter)
}

func (s *Service) getRouter(w http.ResponseWriter, r *http.Request) error {
	t, err := routerTarget(r)
	if err != nil {
		return err
	}
	if err := s.fresh(r); err != nil {
		return err
	}
	return s.answerOne(w, r, t.kind, t.id, t.noun, shapeRouter)
}

// networkUpdate is one element of network_updates.
type networkUpdate struct {
	Action  string   `json:"action"` // add or delete
	Network log.UUID `json:"network_uuid"`
}

// networkUpdates reads what to add to and remove from a router.
func networkUpdates(v any) (updates []networkUpdate, bad *element) {
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &updates)
	}
	if err != nil || slices.ContainsFunc(updates, func(u networkUpdate) bool {
		return u.Action != "add" && u.Action != "delete" || u.Network.IsZero()
	}) {
		return nil, wrong("must be an array of {action: add or delete, network_uuid}")
	}
	return updates, nil
}

// apply returns a router's networks after the updates.
func apply(networks []log.UUID, updates []networkUpdate) []log.UUID {
	networks = slices.Clone(networks)
	for _, u := range updates {
		at := slices.Index(networks, u.Network)
		switch {
		case u.Action == "add" && at < 0:
			networks = append(networks, u.Network)
		case u.Action == "delete" && at >= 0:
			networks = slices.Delete(networks, at, at+1)
		}
	}
	return networks
}

// updateRouter changes a router. network_updates depend on its present networks, which
// are a condition of the change.
func (s *Service) updateRouter(w http.ResponseWriter, r *http.Request) error {
	t, err := routerTarget(r)
	if err != nil {
		return err
	}
	in, err := s.readInput(r, routerForm{})
	if err != nil {
		return err
	}
	router := new(log.Router)
	takeRouter(in, router)
	set := in.names()
	var updates []networkUpdate
	if t.guarded = take(in, "network_updates", networkUpdates, &updates); t.guarded {
		if in.has("networks") {
			in.bad("network_updates", "cannot be sent with networks")
		}
		set = append(set, "networks")
		slices.Sort(set)
	}
	if err := in.err(); err != nil {
		return routerError(err)
	}
	_, err = s.change(r, t, func(_ *projections.State, rec projections.Record) ([]log.Op, error) {
		o := *router
		if t.guarded {
			o.Networks = apply(rec.Object.(*log.Router).Networks, updates)
		}
		return []log.Op{{Action: log.Update, Kind: t.kind, ID: t.id, Set: set, Object: &o}}, nil
	})
	if err != nil {
		return routerError(err)
	}
	return s.answerOne(w, r, t.kind, t.id, t.noun, shapeRouter)
}

func (s *Service) deleteRouter(w http.ResponseWriter, r *http.Request) error {
	t, err := routerTarget(r)
	if err != nil {
		return err
	}
	return s.remove(w, r, t)
}
