package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"rutter/api/auth/guard"
	"rutter/api/rest"
	"rutter/api/triton/vmapi"
	"rutter/log"
	"rutter/log/vmrule"
	"rutter/projections"
)

// updateVM answers PUT and POST /vms/ID under the rule of package vmrule: what
// NICs have of their networks is refused, and what is asked of NICs themselves is
// part of the same change.
func (o *objectRoutes) updateVM(w http.ResponseWriter, r *http.Request, k *kindRoute, id string, op log.Op) error {
	if _, err := rest.Query(r, waiting...); err != nil {
		return err
	}
	if noted, err := rest.NoteContent(r); err == nil { // else readBody says so
		r = noted
	}
	body, err := rest.ReadBody(r)
	if err != nil {
		return err
	}
	var rule vmrule.VM
	vm := &log.VM{} // of one that is not there nothing is known
	o.read.store.View(func(state *projections.State, _ log.Cursor) {
		// Nor of one that is nothing to who asks, or what is said of the body would
		// tell of its NICs and their networks.
		known := log.UUID{}
		if rec, there := state.Get(k.kind, id); there && guard.GrantOf(r).Knows(state, rec.Object) {
			vm, known = rec.Object.(*log.VM), uuidOf(id)
		}
		rule = vmapi.RuleOf(state, known)
	})
	u, err := vmrule.Check(body, rule)
	var refusal *log.Refusal
	if errors.As(err, &refusal) && refusal.Errors[0].Field != vmrule.FieldBody {
		return refusal
	}
	if vm.State == "provisioning" && !reports(u) {
		return rest.Fail(http.StatusConflict, vmapi.CodeUnallocated, "wait until it runs or is stopped", vmapi.MessageUnallocated)
	}
	ops := vmapi.Ops(u)
	task, failed := vmapi.Task(vm, u, nil)
	if failed != nil {
		return failed
	}
	// What is asked of NICs alone goes with the condition on the VM, if there is one.
	if err != nil || len(u.Rest) > 0 || len(ops) == 0 || op.IfMatch != 0 {
		if err == nil {
			if body, err = json.Marshal(u.Rest); err != nil {
				return err
			}
		}
		object, set, err := log.ParseObject(k.kind, body)
		if err != nil {
			return err
		}
		op.Action, op.Kind, op.ID, op.Set, op.Object = log.Update, k.kind, id, set, object
		ops = append(ops, op)
	}
	ops = append(ops, task...)
	change, err := o.write.changeID(r)
	if err != nil {
		return err
	}
	c := &log.Change{ID: change, Ops: ops, Content: rest.ContentOf(r)}
	if _, err := o.write.propose(w, r, c); err != nil {
		return err
	}
	return o.answerObject(w, r, rest.Parameters{}, k, id)
}

// ofReports are the fields of a VM that say how and where it is.
var ofReports = []string{"last_modified", "server_uuid", "state", "zone_state"}

// reports tells who says how a VM is from who changes it.
func reports(u vmrule.Update) bool {
	for name := range u.Rest {
		if !slices.Contains(ofReports, name) {
			return false
		}
	}
	return len(u.NICs) == 0
}
