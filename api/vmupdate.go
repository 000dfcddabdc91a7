package api

import (
	"encoding/json"
	"errors"
	"net/http"

	"rutter/api/vmapi"
	"rutter/log"
	"rutter/log/vmrule"
	"rutter/projections"
)

// updateVM answers PUT and POST /vms/ID under the rule of package vmrule: what
// NICs have of their networks is refused, and what is asked of NICs themselves is
// part of the same change.
func (s *Server) updateVM(w http.ResponseWriter, r *http.Request, k *kindRoute, id string, revision log.Revision) error {
	if _, err := query(r, waiting...); err != nil {
		return err
	}
	body, err := readBody(r)
	if err != nil {
		return err
	}
	var rule vmrule.VM
	s.store.View(func(state *projections.State, _ log.Cursor) { rule = vmapi.RuleOf(state, uuidOf(id)) })
	u, err := vmrule.Check(body, rule)
	var refusal *log.Refusal
	if errors.As(err, &refusal) && refusal.Errors[0].Field != vmrule.FieldBody {
		return refusal
	}
	ops := vmapi.Ops(u)
	if err != nil || len(u.Rest) > 0 || len(ops) == 0 {
		if err == nil {
			if body, err = json.Marshal(u.Rest); err != nil {
				return err
			}
		}
		object, set, err := log.ParseObject(k.kind, body)
		if err != nil {
			return err
		}
		ops = append(ops, log.Op{Action: log.Update, Kind: k.kind, ID: id, IfMatch: revision, Set: set, Object: object})
	}
	change, err := changeID(r)
	if err != nil {
		return err
	}
	if _, err := s.propose(w, r, &log.Change{ID: change, Ops: ops}); err != nil {
		return err
	}
	return s.answerObject(w, r, parameters{}, k, id)
}
