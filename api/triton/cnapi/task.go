package cnapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"rutter/agent/sysinfo"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/vmrule"
	"rutter/projections"
)

// startTask takes {task, params, timeout, req_id}.
func (s *Service) startTask(w http.ResponseWriter, r *http.Request) error {
	fields, err := fieldsOf(r)
	if err != nil {
		return err
	}
	name, err := textField(fields, "task")
	if err != nil {
		return err
	}
	if name == "" {
		return missingField("task", "say what is to be done, as in nop or machine_boot")
	}
	params := map[string]json.RawMessage{}
	if raw, ok := fields["params"]; ok {
		if err := json.Unmarshal(raw, &params); err != nil {
			return badField("params", "send an object", "%s", wrongKind(err, "object"))
		}
	}
	return s.start(w, r, name, fields, params)
}

// startNamed takes the params of one task as the fields of the request.
func (s *Service) startNamed(name string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		fields, err := fieldsOf(r)
		if err != nil {
			return err
		}
		return s.start(w, r, name, fields, without(fields, "timeout", "req_id", "server_uuid"))
	}
}

// startVMTask is startNamed of a task on the VM that the path names.
func (s *Service) startVMTask(name string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		fields, err := fieldsOf(r)
		if err != nil {
			return err
		}
		params := without(fields, "timeout", "req_id", "server_uuid", "vm_uuid")
		if r.PathValue("vm") != "" {
			vm, err := pathID(r, "vm")
			if err != nil {
				return err
			}
			params["uuid"], _ = json.Marshal(vm)
		}
		return s.start(w, r, name, fields, params)
	}
}

func without(fields map[string]json.RawMessage, names ...string) map[string]json.RawMessage {
	rest := make(map[string]json.RawMessage, len(fields))
	for name, raw := range fields {
		rest[name] = raw
	}
	for _, name := range names {
		delete(rest, name)
	}
	return rest
}

// start makes a task and answers with its id.
func (s *Service) start(w http.ResponseWriter, r *http.Request, name string, fields, params map[string]json.RawMessage) error {
	o, err := s.needServer(r)
	if err != nil {
		return err
	}
	if s.cfg.Asker != nil && name == "command_execute" {
		if _, by := s.cfg.Asker(r); by.Role != log.RoleTrusted {
			return failure(http.StatusForbidden, log.CodeNotAuthorized, "commands on a compute node are the operators': use the certificate of one")
		}
	}
	t, err := s.taskOf(r, o, name, fields, params)
	if err != nil {
		return err
	}
	result, err := s.propose(r.Context(), r, log.Op{Action: log.Create, Kind: log.KindTask, Object: t})
	if err != nil {
		return err
	}
	rest.WriteJSON(w, r, http.StatusOK, map[string]any{"id": result.IDs[0]})
	return nil
}

// plainTasks are the tasks that choose nothing that runs on a compute node, if their
// params do not.
var plainTasks = []string{"machine_boot", "machine_create", "machine_destroy", "machine_kill", "machine_reboot", "machine_shutdown", "machine_update", "nop", "sysinfo"}

// checkPrograms refuses a task that chooses what runs on a compute node, if the client
// may not. The node's agent decides again.
func (s *Service) checkPrograms(r *http.Request, name string, params map[string]json.RawMessage) error {
	if s.cfg.Programs == nil || s.cfg.Programs(r) {
		return nil
	}
	const remedy = "use the certificate of an operator, or let this address in with --triton-allow CIDR=programs"
	if !slices.Contains(plainTasks, name) {
		return failure(http.StatusForbidden, log.CodeNotAuthorized, "task %s may run programs on the compute node, which write access does not allow: %s", name, remedy)
	}
	uuid, _ := textField(params, "uuid") // one that is no text is refused by the node
	if names := vmrule.Programs(uuid, params); len(names) > 0 {
		return failure(http.StatusForbidden, log.CodeNotAuthorized, "%s: what runs on a compute node is not chosen with write access: leave it out, %s", strings.Join(names, ", "), remedy)
	}
	return nil
}

// secondsField is a field that is a number of seconds, or a text of one.
func secondsField(fields map[string]json.RawMessage, name string) (uint64, error) {
	raw, ok := fields[name]
	if !ok || string(raw) == "null" {
		return 0, nil
	}
	text := string(raw)
	if text[0] == '"' {
		_ = json.Unmarshal(raw, &text) // else it is no number either
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 {
		return 0, badField(name, "send a number of seconds, or leave it out", "%.40q is no number from 1 on", text)
	}
	return n, nil
}

// viaOf is how tasks reach a server: those whose sysinfo is that of a cn-agent, by
// HTTP.
func viaOf(o *log.Server) string {
	info, err := sysinfo.Parse([]byte(o.Sysinfo))
	if err != nil || info.Agent != "" {
		return log.ViaFeed
	}
	return log.ViaHTTP
}

// taskForm is a task as CNAPI shows it, and what more there is.
func taskForm(t *log.Task) map[string]any {
	history := []json.RawMessage{}
	for _, text := range t.History {
		history = append(history, json.RawMessage(text))
	}
	m := map[string]any{
		"id": t.UUID, "req_id": t.ReqID, "task": t.Task, "server_uuid": t.ServerUUID, "status": t.Status, "timestamp": t.Created,
		"history": history, "via": t.Via, "deadline": t.Deadline, "params": asJSON(t.Params, "{}"),
	}
	if t.Started != 0 {
		m["started"], m["claimed_by"] = t.Started, t.ClaimedBy
	}
	if t.Claimant != "" {
		m["claimant"] = t.Claimant
	}
	if t.Finished != 0 {
		m["finished"] = t.Finished
	}
	if t.Failure != "" {
		m["failure"] = t.Failure
	}
	if t.Result != "" {
		m["result"] = json.RawMessage(t.Result)
	}
	return m
}

func (s *Service) getTask(w http.ResponseWriter, r *http.Request) error {
	t, err := s.needTask(r)
	if err != nil {
		return err
	}
	rest.WriteJSON(w, r, http.StatusOK, taskForm(t))
	return nil
}

var taskStates = []string{log.TaskQueued, log.TaskActive, log.TaskComplete, log.TaskFailure}

// listTasks answers the tasks of one server or of all, the newest first.
func (s *Service) listTasks(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	limit, offset, err := pageOf(query)
	if err != nil {
		return err
	}
	of := query.Get("server_uuid")
	if r.PathValue("server") != "" {
		of = r.PathValue("server")
	}
	var cn log.UUID
	if of != "" {
		if cn, err = log.ParseUUID(of); err != nil {
			return badField("server_uuid", "send a UUID of 36 characters", "%q is not a UUID", of)
		}
	}
	status := query.Get("status")
	if status != "" && !slices.Contains(taskStates, status) {
		return badField("status", "send one of "+strings.Join(taskStates, ", "), "%q is no state of a task", status)
	}
	for name := range query {
		if !slices.Contains([]string{"limit", "offset", "server_uuid", "status"}, name) {
			return badField(name, "leave it out", "tasks are not found by %q", name)
		}
	}
	var tasks []*log.Task
	s.store.View(func(state *projections.State, _ log.Cursor) {
		list := state.List(log.KindTask)
		if of != "" {
			list = state.TasksOn(cn)
		}
		for rec := range list {
			t := rec.Object.(*log.Task)
			if status == "" || t.Status == status {
				tasks = append(tasks, t)
			}
		}
	})
	slices.SortStableFunc(tasks, func(a, b *log.Task) int { return cmp.Compare(b.Created, a.Created) })
	tasks = tasks[min(offset, len(tasks)):]
	forms := []map[string]any{}
	for _, t := range tasks[:min(limit, len(tasks))] {
		forms = append(forms, taskForm(t))
	}
	rest.WriteJSON(w, r, http.StatusOK, forms)
	return nil
}

// waitTask answers when the task has ended, wherever it was started, or at the
// timeout, with the task as it then is.
func (s *Service) waitTask(w http.ResponseWriter, r *http.Request) error {
	t, err := s.needTask(r)
	if err != nil {
		return err
	}
	id := t.UUID
	_, err = s.waitUntil(w, r, func() bool {
		t = s.task(id)
		return t == nil || t.Ended()
	})
	if err != nil {
		return err
	}
	if t == nil {
		return notFound(noTask)
	}
	rest.WriteJSON(w, r, http.StatusOK, taskForm(t))
	return nil
}

// waitUntil looks at what the log says now, and again whenever that changed, until
// it is so or ?timeout= is over. in says which.
func (s *Service) waitUntil(w http.ResponseWriter, r *http.Request, is func() bool) (in bool, err error) {
	wait := time.Hour
	if text := r.URL.Query().Get("timeout"); text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || time.Duration(n)*time.Second > maxWait {
			return false, badField("timeout", "wait for less, and again", "%q is no number from 0 to %d", text, int(maxWait.Seconds()))
		}
		wait = time.Duration(n) * time.Second
	}
	// The answer may come later than others may.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + proposeTime)) // a recorder has none
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	for {
		changed := s.store.Changed()
		if is() {
			return true, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false, nil
		}
		select { // one look for all that comes together
		case <-time.After(wakeGather):
		case <-ctx.Done():
		}
	}
}
