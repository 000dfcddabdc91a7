package api

import (
	"net/http"

	"rutter/api/auth/guard"
	"rutter/api/backend"
	"rutter/api/internal/nodes"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/naming"
)

// objectRoutes are the paths of the kinds of objects.
type objectRoutes struct {
	store backend.Store
	read  *backend.Reader
	write *backend.Writer
	log   rest.Endpoint // answers GET /log
}

func (o *objectRoutes) routes() []rest.Route {
	var all []rest.Route
	for _, k := range kinds {
		path := "/" + k.path
		all = append(all,
			rest.Route{Method: "GET", Pattern: path, Serve: o.list(k)},
			rest.Route{Method: "POST", Pattern: path, Serve: o.create(k)},
			rest.Route{Method: "DELETE", Pattern: path + "/{id}", Serve: o.remove(k)},
			rest.Route{Method: "GET", Pattern: path + "/{id}", Serve: o.get(k)},
			rest.Route{Method: "POST", Pattern: path + "/{id}", Serve: o.update(k)},
			rest.Route{Method: "GET", Pattern: path + "/{id}/history", Serve: o.history(k)},
		)
		if k.kind != log.KindVMM { // PUT of a VMM is a doorbell
			all = append(all, rest.Route{Method: "PUT", Pattern: path + "/{id}", Serve: o.update(k)})
		}
	}
	return append(all,
		rest.Route{Method: "GET", Pattern: "/vms/lookup", Serve: o.lookupVMs},
		rest.Route{Method: "POST", Pattern: "/networks/{id}/nics", Serve: o.provision},
	)
}

// list answers GET /KIND.
func (o *objectRoutes) list(k *kindRoute) rest.Endpoint {
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
		if p, err = o.byNames(w, r, p, k); err != nil {
			return err
		}
		conditions, err := k.conditions(p)
		if err != nil {
			return err
		}
		if err := o.read.Fresh(r, p); err != nil {
			return err
		}
		var found []shown
		if err := o.read.InSlices(w, r, p, k.part(p), k.walk(p), func(state *projections.State, rec projections.Record) {
			switch {
			case uint64(len(found)) == limit, !matches(state, rec.Object, conditions), !guard.GrantOf(r).Sees(state, rec.Object):
			case offset > 0:
				offset--
			default:
				found = append(found, show(state, guard.GrantOf(r).Shown(rec.Object)))
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
func (o *objectRoutes) get(k *kindRoute) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		p, err := rest.Query(r, "at")
		if err != nil {
			return err
		}
		m, err := o.read.Named(w, r, p, k.kind, r.PathValue("id"))
		if err != nil {
			return err
		}
		if err := o.read.Fresh(r, p); err != nil {
			return err
		}
		return o.answerObject(w, r, p, k, m.ID)
	}
}

// answerObject answers with one object of this server's state, present or past.
func (o *objectRoutes) answerObject(w http.ResponseWriter, r *http.Request, p rest.Parameters, k *kindRoute, id string) error {
	var rec projections.Record
	var ok bool
	var found shown
	part := backend.PastPart{Objects: []backend.PastObject{{Kind: k.kind, ID: id}}}
	if err := o.read.ViewAt(w, r, p, part, func(state *projections.State) {
		if rec, ok = state.Get(k.kind, id); ok && !guard.GrantOf(r).Sees(state, rec.Object) {
			ok = false // as if it did not exist
		}
		if ok {
			found = show(state, guard.GrantOf(r).Shown(rec.Object))
			if vm, is := rec.Object.(*log.VM); is && isOwn(guard.GrantOf(r).Who, vm) {
				found = shown{object: guard.GrantOf(r).Shown(vm)}
			}
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
func (o *objectRoutes) create(k *kindRoute) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		object, set, err := readObject(r, k.kind)
		if err != nil {
			return err
		}
		return o.writeOne(w, r, k, log.Op{Action: log.Create, Kind: k.kind, Set: set, Object: object})
	}
}

// provision answers POST /networks/UUID/nics: it creates a NIC on that network, with an
// address of its provision range.
func (o *objectRoutes) provision(w http.ResponseWriter, r *http.Request) error {
	nics, networks := kindOf(log.KindNIC), kindOf(log.KindNetwork)
	m, err := o.read.Named(w, r, rest.Parameters{}, networks.kind, r.PathValue("id"))
	if err != nil {
		return err
	}
	w.Header().Del(backend.HeaderID) // it is not the NIC's
	object, set, err := readObject(r, log.KindNIC)
	if err != nil {
		return err
	}
	nic, network := object.(*log.NIC), uuidOf(m.ID)
	if !nic.NetworkUUID.IsZero() && nic.NetworkUUID != network {
		return rest.BadParameter("network_uuid", log.ElementInvalid, "leave it out, or use the path of that network", "the path says network %s, the body %s", network, nic.NetworkUUID)
	}
	nic.NetworkUUID = network
	set = withName(set, "network_uuid")
	return o.writeOne(w, r, nics, log.Op{Action: log.Create, Kind: log.KindNIC, Set: set, Object: nic})
}

// update answers PUT /KIND/ID, and POST for VMAPI and CNAPI.
func (o *objectRoutes) update(k *kindRoute) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		r = withContent(r, k)
		op, err := o.opOn(w, r, k)
		if err != nil {
			return err
		}
		if k.kind == log.KindVM {
			return o.updateVM(w, r, k, op.ID, op)
		}
		object, set, err := readObject(r, k.kind)
		if err != nil {
			return err
		}
		op.Action, op.Kind, op.Set, op.Object = log.Update, k.kind, set, object
		return o.writeOne(w, r, k, op)
	}
}

// opOn returns an operation on the object that the path names, under the condition of the
// request.
func (o *objectRoutes) opOn(w http.ResponseWriter, r *http.Request, k *kindRoute) (op log.Op, err error) {
	if op, err = rest.IfMatch(r); err != nil {
		return op, err
	}
	m, err := o.read.Named(w, r, rest.Parameters{}, k.kind, r.PathValue("id"))
	if err != nil {
		return op, err
	}
	op.ID = m.ID
	return op, backend.Unchanged(&op, m)
}

// withContent is a request whose path names its object in another way than by the id, with its
// content: a retry may find the object changed by the first try, and is the same change.
func withContent(r *http.Request, k *kindRoute) *http.Request {
	if _, is := naming.IsID(k.kind, r.PathValue("id")); is || r.PathValue("id") == "" {
		return r
	}
	with, err := rest.NoteContent(r)
	if err != nil {
		return r // readBody returns the error
	}
	return with
}

// remove answers DELETE /KIND/ID.
func (o *objectRoutes) remove(k *kindRoute) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		r = withContent(r, k)
		op, err := o.opOn(w, r, k)
		if err != nil {
			return err
		}
		op.Action, op.Kind = log.Delete, k.kind
		return o.writeOne(w, r, k, op)
	}
}

// writeOne proposes a change of one operation, and answers with the object.
func (o *objectRoutes) writeOne(w http.ResponseWriter, r *http.Request, k *kindRoute, op log.Op) error {
	if _, err := rest.Query(r, nodes.Waiting...); err != nil {
		return err
	}
	id, err := o.write.ChangeID(r)
	if err != nil {
		return err
	}
	result, err := o.write.Propose(w, r, &log.Change{ID: id, Ops: []log.Op{op}, Content: rest.ContentOf(r)})
	if err != nil {
		return err
	}
	if op.Action == log.Delete {
		rest.SetSeq(w, result.Last)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	backend.Warn(w, o.store.View, []log.Op{op}, result.IDs)
	return o.answerObject(w, r, rest.Parameters{}, k, result.IDs[0])
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

// history answers GET /KIND/UUID/history: GET /log of one object, with all its
// parameters except kind and object.
func (o *objectRoutes) history(k *kindRoute) rest.Endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		m, err := o.read.Named(w, r, rest.Parameters{}, k.kind, r.PathValue("id"))
		if err != nil {
			return err
		}
		q := r.URL.Query()
		if q.Has("kind") || q.Has("object") {
			return rest.BadParameter("object", log.ElementInvalid, "use GET /log", "the path names the object")
		}
		q.Set("kind", k.kind.String())
		q.Set("object", m.ID)
		of := r.Clone(r.Context())
		of.URL.RawQuery = q.Encode()
		return o.log(w, of)
	}
}
