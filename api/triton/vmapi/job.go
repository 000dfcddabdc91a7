package vmapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// executions are the words of the Workflow API for the status of a task.
var executions = map[string]string{log.TaskQueued: "queued", log.TaskActive: "running", log.TaskComplete: "succeeded", log.TaskFailure: "failed"}

// jobNames are VMAPI's names for the jobs that tasks are here.
var jobNames = map[string]string{
	"machine_boot": "start", "machine_create": "provision", "machine_destroy": "destroy", "machine_kill": "kill", "machine_reboot": "reboot", "machine_shutdown": "stop",
	"machine_update": "update",
}

// job is a task as a job of VMAPI.
func job(t *log.Task) map[string]any {
	params := map[string]any{}
	_ = json.Unmarshal([]byte(t.Params), &params) // the log took it as an object
	vm := projections.VMOfTask(t)
	name := jobNames[t.Task]
	params["task"], params["vm_uuid"], params["server_uuid"] = name, vm, t.ServerUUID
	results := []any{}
	if t.Ended() {
		one := map[string]any{"name": t.Task, "result": "OK", "started_at": t.Started, "finished_at": t.Finished}
		if t.Status == log.TaskFailure {
			one["result"], one["error"] = "", t.Failure
		}
		results = append(results, one)
	}
	return map[string]any{
		"uuid": t.UUID, "name": name, "execution": executions[t.Status], "params": params, "created_at": t.Created, "exec_after": t.Created,
		"timeout": t.Timeout, "chain_results": results,
	}
}

// getJob answers GET /jobs/UUID for a task of a VM.
func (s *Service) getJob(w http.ResponseWriter, r *http.Request) error {
	id, err := log.ParseUUID(r.PathValue("job"))
	if err != nil {
		return invalid("uuid", "Invalid UUID")
	}
	if err := s.serves(); err != nil {
		return err
	}
	var t *log.Task
	look := func(state *projections.State, _ log.Cursor) {
		if rec, ok := state.Get(log.KindTask, id.String()); ok {
			t = rec.Object.(*log.Task)
		}
	}
	if s.cfg.Store.View(look); t == nil {
		if err := s.consistent(r.Context(), "whether job "+id.String()+" exists"); err != nil {
			return err
		}
		s.cfg.Store.View(look)
	}
	if t == nil || jobNames[t.Task] == "" {
		return fail(http.StatusNotFound, log.CodeResourceNotFound, "Job %s not found", id)
	}
	rest.WriteEscaped(w, http.StatusOK, job(t))
	return nil
}

// jobFilter is what a list of jobs asks for; zero values ask for nothing.
type jobFilter struct {
	vm, owner, server log.UUID
	name, execution   string
}

// jobFilterOf reads the parameters of a list of jobs.
func jobFilterOf(query url.Values) (f jobFilter, err error) {
	for name, id := range map[string]*log.UUID{"vm_uuid": &f.vm, "owner_uuid": &f.owner, "server_uuid": &f.server} {
		if text := query.Get(name); text != "" {
			if *id, err = log.ParseUUID(text); err != nil {
				return f, invalid(name, "Invalid UUID")
			}
		}
	}
	f.name, f.execution = query.Get("task"), query.Get("execution")
	return f, nil
}

// has reports whether a task is a job that the filter asks for.
func (f jobFilter) has(state *projections.State, t *log.Task) bool {
	name := jobNames[t.Task]
	if name == "" || f.name != "" && f.name != name || f.execution != "" && f.execution != executions[t.Status] || !f.server.IsZero() && f.server != t.ServerUUID {
		return false
	}
	vm := projections.VMOfTask(t)
	if vm.IsZero() || !f.vm.IsZero() && f.vm != vm {
		return false
	}
	if f.owner.IsZero() {
		return true
	}
	rec, known := state.Get(log.KindVM, vm.String())
	return known && rec.Object.(*log.VM).OwnerUUID == f.owner
}

// listJobs answers GET /vms/UUID/jobs and GET /jobs: the tasks of a VM, or of all, the
// newest first.
func (s *Service) listJobs(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	f, err := jobFilterOf(query)
	if err != nil {
		return err
	}
	if r.PathValue("uuid") != "" {
		vm, _, err := s.find1(r)
		if err != nil {
			return err
		}
		f.vm = vm.UUID
	}
	limit, offset, err := page(query)
	if err == nil {
		err = s.serves()
	}
	if err != nil {
		return err
	}
	found := s.jobs(f)
	slices.SortStableFunc(found, func(a, b *log.Task) int { return cmp.Compare(b.Created, a.Created) })
	list := []map[string]any{}
	found = found[min(offset, len(found)):] // their sum may overflow
	for _, t := range found[:min(limit, len(found))] {
		list = append(list, job(t))
	}
	w.Header().Set("X-Joyent-Resource-Count", strconv.Itoa(len(found)))
	rest.WriteEscaped(w, http.StatusOK, list)
	return nil
}

// jobs returns the tasks that a filter asks for. The state is held for sliceVMs of them at
// a time.
func (s *Service) jobs(f jobFilter) (found []*log.Task) {
	var last log.Object
	for more := true; more; {
		n := 0
		s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
			for rec := range state.Walk(projections.Walk{Kind: log.KindTask}, last) {
				t := rec.Object.(*log.Task)
				if last = t; f.has(state, t) {
					found = append(found, t)
				}
				if n++; n == sliceVMs {
					break
				}
			}
		})
		more = n == sliceVMs
	}
	return found
}
