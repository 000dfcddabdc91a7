package api

import (
	"log/slog"
	"net/http"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/backend"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// grantRoutes are the paths of grants.
type grantRoutes struct {
	store  backend.Store
	newID  func() (log.UUID, error)
	guard  *guard.Guard
	write  *backend.Writer
	logger *slog.Logger
}

func (g *grantRoutes) routes() []rest.Route {
	return []rest.Route{
		{Method: "GET", Pattern: "/grants", Serve: g.list},
		{Method: "PUT", Pattern: "/grants/{subject...}", Serve: g.put},
		{Method: "DELETE", Pattern: "/grants/{subject...}", Serve: g.remove},
	}
}

// ownersOf returns the tenants to whose objects a reader is limited, by the current
// log; none: it may see all.
func ownersOf(store backend.Store, who matrix.Identity) (owners []log.UUID) {
	store.View(func(state *projections.State, _ log.Cursor) {
		if r, ok := state.Get(log.KindGrant, who.Actor()); ok {
			owners = r.Object.(*log.Grant).OwnerUUIDs
		}
	})
	return append(owners[:len(owners):len(owners)], who.Owners...)
}

// list answers GET /grants.
func (g *grantRoutes) list(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r); err != nil {
		return err
	}
	all := []*log.Grant{}
	g.store.View(func(state *projections.State, head log.Cursor) {
		rest.SetSeq(w, head.Seq)
		for rec := range state.List(log.KindGrant) {
			all = append(all, rec.Object.(*log.Grant))
		}
	})
	rest.WriteJSON(w, r, http.StatusOK, all)
	return nil
}

// put answers PUT /grants/SUBJECT: it creates or replaces the grant.
func (g *grantRoutes) put(w http.ResponseWriter, r *http.Request) error {
	body, err := rest.ReadBody(r)
	if err != nil {
		return err
	}
	grant := new(log.Grant)
	if err := rest.DecodeStrict(body, grant); err != nil {
		return rest.BadParameter("body", log.ElementInvalid, `send {"owner_uuids": [...]} for a reader, {"read": [...], "write": [...]} for a program without a certificate`, "the body is not a grant: %v", err)
	}
	grant.Subject = r.PathValue("subject")
	fields := []string{"comment", "owner_uuids", "read", "write"}
	op := log.Op{Action: log.Create, Kind: log.KindGrant, Object: grant, Set: append(fields, "subject")}
	g.store.View(func(state *projections.State, _ log.Cursor) {
		if _, ok := state.Get(log.KindGrant, grant.Subject); ok {
			op = log.Op{Action: log.Update, Kind: log.KindGrant, ID: grant.Subject, Object: grant, Set: fields}
		}
	})
	if err := g.change(w, r, op); err != nil {
		return err
	}
	rest.WriteJSON(w, r, http.StatusOK, grant)
	return nil
}

// remove answers DELETE /grants/SUBJECT.
func (g *grantRoutes) remove(w http.ResponseWriter, r *http.Request) error {
	if err := g.change(w, r, log.Op{Action: log.Delete, Kind: log.KindGrant, ID: r.PathValue("subject")}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (g *grantRoutes) change(w http.ResponseWriter, r *http.Request, op log.Op) error {
	id, err := g.newID()
	if err != nil {
		return err
	}
	if _, err := g.write.Propose(w, r, &log.Change{ID: id, Ops: []log.Op{op}}); err != nil {
		return err
	}
	g.logger.Warn("a grant was changed", "subject", r.PathValue("subject"), "action", op.Action, "by", g.guard.Actor(r))
	return nil
}
