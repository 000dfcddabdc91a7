package api

import (
	"net/http"

	"rutter/api/auth/guard"
	"rutter/api/rest"
	"rutter/log"
	"rutter/projections"
)

// list answers GET /KIND.
func (s *Server) list(k *kindRoute) rest.Endpoint {
	allowed := append(k.filterNames(), "limit", "offset", "at")
	return func(w http.ResponseWriter, r *http.Request) error {
		p, err := rest.Query(r, allowed...)
		if err != nil {
			return err
		}
		limit, err := p.Number("limit", MaxList, 1, MaxList)
		if err != nil {
			return err
		}
		offset, err := p.Number("offset", 0, 0, 1<<63)
		if err != nil {
			return err
		}
		conditions, err := k.conditions(p)
		if err != nil {
			return err
		}
		if err := s.fresh(r, p); err != nil {
			return err
		}
		var found []shown
		if err := s.inSlices(w, r, p, k.part(p), k.walk(p), func(state *projections.State, rec projections.Record) {
			switch {
			case uint64(len(found)) == limit, !matches(state, rec.Object, conditions), !guard.GrantOf(r).Sees(state, rec.Object):
			case offset > 0:
				offset--
			default:
				found = append(found, show(state, rec.Object))
			}
		}, func() bool { return uint64(len(found)) < limit }); err != nil {
			return err
		}
		forms := make([]any, len(found))
		for i, one := range found {
			forms[i] = one.form()
		}
		rest.WriteJSON(w, r, http.StatusOK, forms)
		return nil
	}
}

// get answers GET /KIND/ID.
func (s *Server) get(k *kindRoute) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, err := k.id(r)
		if err != nil {
			return err
		}
		p, err := rest.Query(r, "at")
		if err != nil {
			return err
		}
		if err := s.fresh(r, p); err != nil {
			return err
		}
		return s.answerObject(w, r, p, k, id)
	}
}

// answerObject answers with one object as this server has it, or had it.
func (s *Server) answerObject(w http.ResponseWriter, r *http.Request, p rest.Parameters, k *kindRoute, id string) error {
	var rec projections.Record
	var ok bool
	var found shown
	part := PastPart{Objects: []PastObject{{k.kind, id}}}
	if err := s.viewAt(w, r, p, part, func(state *projections.State) {
		if rec, ok = state.Get(k.kind, id); ok && !guard.GrantOf(r).Sees(state, rec.Object) {
			ok = false // as if there were none
		}
		if ok {
			found = show(state, rec.Object)
		}
	}); err != nil {
		return err
	}
	if !ok {
		return rest.NotFound(k.noun)
	}
	tag := rec.ETag()
	w.Header().Set("Etag", tag)
	if rest.NotModified(w, r, tag, rest.HasTag) {
		return nil
	}
	rest.WriteJSON(w, r, http.StatusOK, found.form())
	return nil
}

// create answers POST /KIND.
func (s *Server) create(k *kindRoute) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		object, set, err := readObject(r, k.kind)
		if err != nil {
			return err
		}
		return s.writeOne(w, r, k, log.Op{Action: log.Create, Kind: k.kind, Set: set, Object: object})
	}
}

// provision answers POST /networks/UUID/nics: a NIC on that network, with an
// address of its provision range.
func (s *Server) provision(w http.ResponseWriter, r *http.Request) error {
	nics, networks := kindOf(log.KindNIC), kindOf(log.KindNetwork)
	text, err := networks.id(r)
	if err != nil {
		return err
	}
	object, set, err := readObject(r, log.KindNIC)
	if err != nil {
		return err
	}
	nic, network := object.(*log.NIC), uuidOf(text)
	if !nic.NetworkUUID.IsZero() && nic.NetworkUUID != network {
		return rest.BadParameter("network_uuid", log.ElementInvalid, "leave it out, or use the path of that network", "the path says network %s, the body %s", network, nic.NetworkUUID)
	}
	nic.NetworkUUID = network
	set = withName(set, "network_uuid")
	return s.writeOne(w, r, nics, log.Op{Action: log.Create, Kind: log.KindNIC, Set: set, Object: nic})
}

// update answers PUT /KIND/ID, and POST as VMAPI and CNAPI have it.
func (s *Server) update(k *kindRoute) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, err := k.id(r)
		if err != nil {
			return err
		}
		op, err := rest.IfMatch(r)
		if err != nil {
			return err
		}
		if k.kind == log.KindVM {
			return s.updateVM(w, r, k, id, op)
		}
		object, set, err := readObject(r, k.kind)
		if err != nil {
			return err
		}
		op.Action, op.Kind, op.ID, op.Set, op.Object = log.Update, k.kind, id, set, object
		return s.writeOne(w, r, k, op)
	}
}

// remove answers DELETE /KIND/ID.
func (s *Server) remove(k *kindRoute) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, err := k.id(r)
		if err != nil {
			return err
		}
		op, err := rest.IfMatch(r)
		if err != nil {
			return err
		}
		op.Action, op.Kind, op.ID = log.Delete, k.kind, id
		return s.writeOne(w, r, k, op)
	}
}

// writeOne proposes a change of one operation, and answers with its object.
func (s *Server) writeOne(w http.ResponseWriter, r *http.Request, k *kindRoute, op log.Op) error {
	if _, err := rest.Query(r, waiting...); err != nil {
		return err
	}
	id, err := s.changeID(r)
	if err != nil {
		return err
	}
	result, err := s.propose(w, r, &log.Change{ID: id, Ops: []log.Op{op}})
	if err != nil {
		return err
	}
	if op.Action == log.Delete {
		setSeq(w, result.Last)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return s.answerObject(w, r, rest.Parameters{}, k, result.IDs[0])
}

// kindOf returns the route of a kind that has one.
func kindOf(kind log.Kind) *kindRoute {
	for _, k := range kinds {
		if k.kind == kind {
			return k
		}
	}
	panic("api: no route for kind " + kind.String())
}
