package vmapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"rutter/agent/sysinfo"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/vmobject"
	"rutter/projections"
)

// find1 returns the VM that the path names, and its parts. A query's owner_uuid that is
// not the VM's owner is answered as if there were no VM.
func (s *Service) find1(r *http.Request) (*log.VM, *parts, error) {
	id, err := vmID(r)
	if err != nil {
		return nil, nil, err
	}
	var owner log.UUID
	if text := r.URL.Query().Get("owner_uuid"); text != "" {
		if owner, err = log.ParseUUID(text); err != nil {
			return nil, nil, invalid("owner_uuid", "Invalid UUID")
		}
	}
	if err := s.serves(); err != nil {
		return nil, nil, err
	}
	if err := s.catchUpFor(r.Context(), id); err != nil {
		return nil, nil, err
	}
	var p *parts
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok := state.Get(log.KindVM, id.String()); ok {
			p = gather(state, rec.Object.(*log.VM))
		}
	})
	if p == nil || !owner.IsZero() && p.vm.OwnerUUID != owner {
		return nil, nil, notFound()
	}
	return p.vm, p, nil
}

func (s *Service) serves() error { return s.cfg.Store.Serving() }

// needAgent refuses what only a compute node can do, unless it has an agent that takes
// tasks of the log.
func (s *Service) needAgent(vm *log.VM, what string) error {
	agent := false
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok := state.Get(log.KindServer, vm.ServerUUID.String()); ok {
			agent = hasAgent(rec.Object.(*log.Server))
		}
	})
	if vm.ServerUUID.IsZero() || vm.State == "provisioning" {
		return unallocated()
	}
	if !agent {
		return notHere(fmt.Sprintf("%s of VM %s, because its compute node %s has no agent of Rutter", what, vm.UUID, vm.ServerUUID))
	}
	return nil
}

// hasAgent reports whether a server has an agent that takes tasks of the log.
func hasAgent(o *log.Server) bool {
	info, err := sysinfo.Parse([]byte(o.Sysinfo))
	return err == nil && info.Agent != ""
}

// notHere is the answer to what only the old VMAPI can do.
func notHere(what string) error {
	return fail(http.StatusNotImplemented, rest.CodeNotHere, "this server does not do %s: name the old VMAPI with --vmapi-behind (setting vmapi-behind), which does", what)
}

// action answers POST /vms/UUID?action=….
func (s *Service) action(w http.ResponseWriter, r *http.Request) error {
	id, err := vmID(r)
	if err != nil {
		return err
	}
	body, err := s.writeBody(r)
	if err != nil {
		return err
	}
	action := r.URL.Query().Get("action")
	fields := map[string]any{}
	if object, err := vmobject.Parse(body); err == nil {
		fields = object
	}
	if text, named := fields["action"].(string); named && action == "" {
		action = text
	}
	sync, err := s.waits.flags(r, fields)
	if err != nil {
		return err
	}
	switch action {
	case "", "update", "update_nics":
		if action == "" && len(fields) == 0 && json.Valid(body) {
			return s.noAction(r)
		}
		return s.change(w, r, id, body, sync)
	case "add_nics":
		return s.addNICs(w, r, fields, sync)
	case "remove_nics":
		return s.removeNICs(w, r, fields, sync)
	}
	task, known := tasks[action]
	if !known {
		if slices.Contains(others, action) {
			return notHere("action=" + action)
		}
		return invalid("action", "'%s' is not served here: send one of %s, add_nics, remove_nics, update, update_nics", action, strings.Join(names(tasks), ", "))
	}
	vm, _, err := s.find1(r)
	if err != nil {
		return err
	}
	params := map[string]any{}
	for _, name := range task.params {
		if value, given := fields[name]; given {
			params[name] = value
		}
	}
	if problem := task.check(vm, fields, params); problem != nil {
		return problem
	}
	return s.startTask(w, r, vm, task.name, params, sync)
}

// noAction refuses a request that names neither an action nor a field.
func (s *Service) noAction(r *http.Request) error {
	if _, _, err := s.find1(r); err != nil {
		return err
	}
	return missing("action", "send one of %s, add_nics, remove_nics, update, update_nics", strings.Join(names(tasks), ", "))
}

// flags reads sync, and refuses values of it and of idempotent that are no truth values.
func (l *syncWaits) flags(r *http.Request, fields map[string]any) (sync bool, err error) {
	for _, name := range []string{"sync", "idempotent"} {
		text := r.URL.Query().Get(name)
		if value, given := fields[name]; given && value != nil {
			text = plain(value)
		}
		if message := oneOf(text, "", "true", "false"); message != "" {
			return false, invalid(name, "Invalid parameter: it must be true or false")
		}
		sync = sync || name == "sync" && text == "true"
	}
	if sync && l.waiting.Load() >= l.most {
		return false, fail(http.StatusServiceUnavailable, rest.CodeOverloaded, "%d requests with sync=true wait at this server, the most that may: nothing was written; leave sync out, and read GET /jobs/UUID", l.most)
	}
	return sync, nil
}

// proc answers GET /vms/UUID/proc, the processes of a VM: no agent of Rutter tells them.
func (s *Service) proc(_ http.ResponseWriter, r *http.Request) error {
	vm, _, err := s.find1(r)
	if err != nil {
		return err
	}
	if vm.State != "running" {
		return fail(http.StatusConflict, "VmNotRunning", "VM not running")
	}
	return notHere("GET /vms/UUID/proc")
}

// others are the actions of VMAPI that no agent of Rutter does.
var others = []string{
	"create_disk", "create_snapshot", "delete_disk", "delete_snapshot", "migrate", "reprovision", "resize_disk", "rollback_snapshot",
}

// vmTask is a task of a compute node that does an action.
type vmTask struct {
	name   string
	params []string // fields of the request that are passed on
	// states are those in which the VM must be; none: any. An idempotent request does not
	// need them.
	states []string
	// force: the VM is ended without being asked.
	force bool
}

// tasks are the tasks that do actions, by VMAPI's names for these.
var tasks = map[string]vmTask{
	"start":  {name: "machine_boot", states: []string{"stopped", "installed"}},
	"stop":   {name: "machine_shutdown", params: []string{"timeout"}, states: []string{"running"}},
	"kill":   {name: "machine_shutdown", force: true},
	"reboot": {name: "machine_reboot", states: []string{"running"}},
}

// check refuses an action that does not fit the VM's state, and completes the params.
func (t vmTask) check(vm *log.VM, fields, params map[string]any) error {
	delete(params, "timeout") // of vmadm: the agent has its own
	if signal, given := fields["signal"]; given {
		if text := strings.TrimPrefix(plain(signal), "SIG"); t.force && text != "KILL" && text != "9" {
			return invalid("signal", "a compute node's agent sends SIGKILL only, and not %.20s", plain(signal))
		}
	}
	if t.force {
		params["force"] = true
	}
	idempotent := plain(fields["idempotent"]) == "true"
	if len(t.states) > 0 && !idempotent && !slices.Contains(t.states, vm.State) {
		return fail(http.StatusConflict, "ValidationFailed", "the VM is %s, and not %s", vm.State, strings.Join(t.states, " or "))
	}
	return nil
}

// remove answers DELETE /vms/UUID.
func (s *Service) remove(w http.ResponseWriter, r *http.Request) error {
	vm, _, err := s.find1(r)
	if err != nil {
		return err
	}
	if vm.ServerUUID.IsZero() {
		return unallocated()
	}
	sync, err := s.waits.flags(r, nil)
	if err != nil {
		return err
	}
	return s.startTask(w, r, vm, "machine_destroy", map[string]any{}, sync)
}

// startTask writes a task for the VM's compute node, and answers 202 with its id; with sync
// when it has ended.
func (s *Service) startTask(w http.ResponseWriter, r *http.Request, vm *log.VM, task string, params map[string]any, sync bool) error {
	if err := s.cfg.Store.AwaitReady(r.Context()); err != nil {
		return err
	}
	if vm.State == destroyed && task != "machine_destroy" { // VMAPI starts that job again
		return isDestroyed()
	}
	if err := s.needAgent(vm, "this change"); err != nil {
		return err
	}
	params["uuid"] = vm.UUID.String()
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	result, err := s.writeOps(r.Context(), r, log.Op{
		Action: log.Create, Kind: log.KindTask, Set: []string{"params", "server_uuid", "task"},
		Object: &log.Task{Task: task, ServerUUID: vm.ServerUUID, Params: string(text)},
	})
	if err != nil {
		return err
	}
	return s.answerTask(w, r, sync, vm.UUID, result, 0)
}
