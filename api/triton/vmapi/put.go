package vmapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/vmobject"
	"rutter/projections"
)

// Bounds of a write of whole objects.
const (
	maxPutBody  = 16 << 20 // bytes: an agent's first PUT has each VM of its compute node
	maxPutVMs   = 4096     // in one request
	changeVMs   = 32       // in one change
	changeBytes = 1 << 20  // of the objects of one change, unless it has one VM only
	maxTries    = 5        // of a change whose VM was written at the same time
)

// destroyed is the state of a VM that is no more.
const destroyed = "destroyed"

// whole is a VM's whole object in a request.
type whole struct {
	vm   *log.VM
	set  []string
	size int
}

// wholeOf reads a whole object of VMAPI or vmadm. A VM that is destroyed gets the zone
// state and the time of that.
func wholeOf(id log.UUID, text []byte, now log.Time) (*whole, error) {
	object, err := vmobject.Parse(text)
	if err != nil {
		return nil, invalid("vm", "%v", err)
	}
	if object["state"] == destroyed {
		object["zone_state"] = destroyed
		if object["destroyed"] == nil {
			object["destroyed"] = now.String()
		}
	}
	vm, set, err := vmobject.TakeObject(object)
	if err != nil {
		return nil, invalid("vm", "%v", err)
	}
	if !vm.UUID.IsZero() && vm.UUID != id {
		return nil, invalid("uuid", "%s is not the VM that the request names, %s", vm.UUID, id)
	}
	vm.UUID = id
	return &whole{vm, set, len(text)}, nil
}

// op is the operation that makes the log's VM the whole object, or none if it is that
// already. A VM that the log does not have is made, unless it is destroyed.
func (o *whole) op(state *projections.State) (op log.Op, needed bool, err error) {
	rec, known := state.Get(log.KindVM, o.vm.UUID.String())
	old := state.Feature() < log.FeatureTriton // the log has no properties yet
	if !known {
		set := slices.Clone(o.set)
		if set = append(set, "uuid"); old || o.vm.Properties == "" {
			set = slices.DeleteFunc(set, func(name string) bool { return name == "properties" })
		}
		slices.Sort(set)
		made := *o.vm
		if made.Properties, _, err = vmobject.Bound(vmobject.Properties(o.vm), log.MaxProperties); err != nil {
			return log.Op{}, false, err
		}
		return log.Op{Action: log.Create, Kind: log.KindVM, Set: slices.Compact(set), Object: &made}, o.vm.State != destroyed, nil
	}
	before := rec.Object.(*log.VM)
	after, changed, err := vmobject.Replace(before, o.vm, o.set)
	if old {
		changed = slices.DeleteFunc(changed, func(name string) bool { return name == "properties" })
	}
	if err != nil || len(changed) == 0 {
		return log.Op{}, false, err
	}
	if before.State == destroyed && after.State == destroyed && vmobject.Properties(before)["destroyed"] != nil {
		return log.Op{}, false, nil // the first report of it said when
	}
	return log.Op{Action: log.Update, Kind: log.KindVM, ID: before.ID(), IfMatch: rec.Revision, Set: changed, Object: after}, true, nil
}

// replace writes whole objects that differ from the log's, a few in each change.
func (s *Service) replace(r *http.Request, all []*whole) error {
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && n < changeVMs && (n == 0 || size+all[n].size <= changeBytes) {
			size += all[n].size
			n++
		}
		if err := s.replaceSome(r, all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// replaceSome writes one change. If a VM was written at the same time, it compares again.
func (s *Service) replaceSome(r *http.Request, some []*whole) error {
	for try := 1; ; try++ {
		c := &log.Change{Actor: s.cfg.Actor(r)}
		var err error
		s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
			for _, one := range some {
				op, needed, failed := one.op(state)
				if err = errors.Join(err, failed); needed {
					c.Ops = append(c.Ops, op)
				}
			}
		})
		if err != nil || len(c.Ops) == 0 {
			return err
		}
		if c.ID, err = s.cfg.NewID(); err != nil {
			return err
		}
		_, err = s.write(r.Context(), c)
		var p *rest.Error
		if !errors.As(err, &p) || p.Code != log.CodePreconditionFailed || try == maxTries {
			return err
		}
		rest.CatchUp(r.Context(), try)
	}
}

// putVM answers PUT /vms/UUID: an agent of a compute node reports a VM, whole.
// Its NICs are not taken: NICs are decided in the log.
func (s *Service) putVM(w http.ResponseWriter, r *http.Request) error {
	id, err := vmID(r)
	if err != nil {
		return err
	}
	body, err := s.writeBody(r)
	if err != nil {
		return err
	}
	var object struct {
		State *string `json:"state"`
		UUID  *string `json:"uuid"`
	}
	if err := json.Unmarshal(body, &object); err != nil || r.URL.Query().Has("action") || object.State == nil || object.UUID == nil {
		sync, err := s.waits.flags(r, nil)
		if err != nil {
			return err
		}
		return s.change(w, r, id, body, sync) // some fields of a VM are an update
	}
	if err := s.catchUpFor(r.Context(), id); err != nil {
		return err
	}
	one, err := wholeOf(id, body, log.TimeOf(time.Now()))
	if err == nil {
		err = s.replace(r, []*whole{one})
	}
	if err != nil {
		return err
	}
	rest.WriteEscaped(w, http.StatusOK, map[string]any{"vm_uuid": id})
	return nil
}

// putVMs answers PUT /vms?server_uuid=UUID with {vms: {UUID: object}}: what an agent finds
// different at its start. VMs that are not named stay as they are.
func (s *Service) putVMs(w http.ResponseWriter, r *http.Request) error {
	text := r.URL.Query().Get("server_uuid")
	if text == "" {
		return missing("server_uuid", "name the compute node whose VMs these are")
	}
	server, err := log.ParseUUID(text)
	if err != nil {
		return invalid("server_uuid", "Invalid UUID")
	}
	body, err := s.writeBody(r)
	if err != nil {
		return err
	}
	var request struct {
		VMs map[string]json.RawMessage `json:"vms"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return invalid("vms", "send an object of VMs by their UUIDs")
	}
	if request.VMs == nil {
		return missing("vms", "send an object of VMs by their UUIDs")
	}
	if len(request.VMs) > maxPutVMs {
		return invalid("vms", "%d VMs are over %d", len(request.VMs), maxPutVMs)
	}
	if err := s.consistent(r.Context(), "which VMs exist"); err != nil {
		return err
	}
	var all []*whole
	now := log.TimeOf(time.Now())
	for _, name := range names(request.VMs) {
		id, err := log.ParseUUID(name)
		if err != nil {
			return invalid("vms", "%.60q is no UUID", name)
		}
		one, err := wholeOf(id, request.VMs[name], now)
		if err != nil {
			return fmt.Errorf("VM %s: %w", id, err)
		}
		if one.vm.ServerUUID.IsZero() {
			one.vm.ServerUUID = server
			one.set = append(one.set, "server_uuid")
			slices.Sort(one.set)
			one.set = slices.Compact(one.set)
		}
		all = append(all, one)
	}
	if err := s.replace(r, all); err != nil {
		return err
	}
	rest.WriteEscaped(w, http.StatusOK, map[string]any{})
	return nil
}

// jobResults answers POST /job_results: a job that makes a VM says how it ended. A VM
// that was not made is failed.
func (s *Service) jobResults(w http.ResponseWriter, r *http.Request) error {
	body, err := s.writeBody(r)
	if err != nil {
		return err
	}
	var result struct {
		Execution string `json:"execution"`
		VM        string `json:"vm_uuid"`
	}
	if err := json.Unmarshal(body, &result); err != nil {
		return invalid("body", "send an object with execution and vm_uuid")
	}
	id, err := log.ParseUUID(result.VM)
	if result.Execution == "failed" && err == nil {
		err = s.edit(r, id, func(vm *log.VM) ([]string, error) {
			if vm.State == destroyed || vm.State == "failed" {
				return nil, nil
			}
			vm.State, vm.ZoneState = "failed", "failed"
			return []string{"state", "zone_state"}, nil
		})
		if err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// edit changes fields of a VM in the log. change gets a copy of the VM, and returns the
// names of the fields that it set; none: nothing is written. It is called again if the VM
// was written at the same time.
func (s *Service) edit(r *http.Request, id log.UUID, change func(*log.VM) ([]string, error)) error {
	if err := s.catchUpFor(r.Context(), id); err != nil {
		return err
	}
	for try := 1; ; try++ {
		var rec projections.Record
		var known bool
		s.cfg.Store.View(func(state *projections.State, _ log.Cursor) { rec, known = state.Get(log.KindVM, id.String()) })
		if !known {
			return notFound()
		}
		vm := *rec.Object.(*log.VM)
		set, err := change(&vm)
		if err != nil || len(set) == 0 {
			return err
		}
		c := &log.Change{Actor: s.cfg.Actor(r), Ops: []log.Op{{Action: log.Update, Kind: log.KindVM, ID: id.String(), IfMatch: rec.Revision, Set: set, Object: &vm}}}
		if c.ID, err = s.cfg.NewID(); err != nil {
			return err
		}
		_, err = s.write(r.Context(), c)
		var p *rest.Error
		if !errors.As(err, &p) || p.Code != log.CodePreconditionFailed || try == maxTries {
			return err
		}
		rest.CatchUp(r.Context(), try)
	}
}

// writeBody returns the body of a write, if this server can write.
func (s *Service) writeBody(r *http.Request) ([]byte, error) {
	body, err := rest.ReadBody(r)
	if err != nil {
		return nil, fail(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "the body is cut, or larger than %d bytes", maxPutBody)
	}
	return body, errors.Join(s.cfg.Store.AwaitReady(r.Context()), s.cfg.Store.Serving())
}

// consistent returns when this server has what any server acknowledged before the call;
// what says what cannot be said if it does not.
func (s *Service) consistent(ctx context.Context, what string) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if _, err := s.cfg.Store.Consistent(ctx); err != nil {
		return fmt.Errorf("%s cannot be said now: %w", what, err)
	}
	return nil
}
