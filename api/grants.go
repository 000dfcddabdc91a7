package api

import (
	"bytes"
	"encoding/json"
	"net/http"

	"rutter/api/auth/matrix"
	"rutter/api/rest"
	"rutter/log"
	"rutter/projections"
)

// ownersOf are the tenants to whose objects a reader is limited, as the log has
// it now; none: it may see all.
func (s *Server) ownersOf(who matrix.Identity) (owners []log.UUID) {
	s.store.View(func(state *projections.State, _ log.Cursor) {
		if r, ok := state.Get(log.KindGrant, who.Actor()); ok {
			owners = r.Object.(*log.Grant).OwnerUUIDs
		}
	})
	return append(owners[:len(owners):len(owners)], who.Owners...)
}

// listGrants answers GET /grants.
func (s *Server) listGrants(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r); err != nil {
		return err
	}
	all := []*log.Grant{}
	s.store.View(func(state *projections.State, head log.Cursor) {
		setSeq(w, head.Seq)
		for rec := range state.List(log.KindGrant) {
			all = append(all, rec.Object.(*log.Grant))
		}
	})
	rest.WriteJSON(w, r, http.StatusOK, all)
	return nil
}

// putGrant answers PUT /grants/SUBJECT: it is made, or replaced.
func (s *Server) putGrant(w http.ResponseWriter, r *http.Request) error {
	body, err := rest.ReadBody(r)
	if err != nil {
		return err
	}
	grant := new(log.Grant)
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(grant); err != nil {
		return rest.BadParameter("body", log.ElementInvalid, `send {"owner_uuids": [...]} for a reader, {"read": [...], "write": [...]} for a program without a certificate`, "the body is not a grant: %v", err)
	}
	grant.Subject = r.PathValue("subject")
	fields := []string{"comment", "owner_uuids", "read", "write"}
	op := log.Op{Action: log.Create, Kind: log.KindGrant, Object: grant, Set: append(fields, "subject")}
	s.store.View(func(state *projections.State, _ log.Cursor) {
		if _, ok := state.Get(log.KindGrant, grant.Subject); ok {
			op = log.Op{Action: log.Update, Kind: log.KindGrant, ID: grant.Subject, Object: grant, Set: fields}
		}
	})
	if err := s.writeGrant(w, r, op); err != nil {
		return err
	}
	rest.WriteJSON(w, r, http.StatusOK, grant)
	return nil
}

// deleteGrant answers DELETE /grants/SUBJECT.
func (s *Server) deleteGrant(w http.ResponseWriter, r *http.Request) error {
	if err := s.writeGrant(w, r, log.Op{Action: log.Delete, Kind: log.KindGrant, ID: r.PathValue("subject")}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) writeGrant(w http.ResponseWriter, r *http.Request, op log.Op) error {
	id, err := s.cfg.NewID()
	if err != nil {
		return err
	}
	if _, err := s.propose(w, r, &log.Change{ID: id, Ops: []log.Op{op}}); err != nil {
		return err
	}
	s.logger.Warn("a grant was changed", "subject", r.PathValue("subject"), "action", op.Action, "by", s.guard.Actor(r))
	return nil
}
