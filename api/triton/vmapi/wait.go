package vmapi

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"

	"rutter/api/internal/rest"
	"rutter/api/triton/internal/provision"
	"rutter/log"
	"rutter/projections"
)

// How long an answer to sync=true may take.
const (
	// syncWithin bounds the whole of it, as VMAPI's wait for a job.
	syncWithin = time.Hour
	// reportWithin bounds the wait for the node's report of what a task that has ended
	// left: an agent sends it with the task's result.
	reportWithin = time.Minute
	// nicsWithin bounds the wait for the NICs of a destroyed VM to go from the log. They may
	// stay, where an operator keeps them: the VM is destroyed all the same.
	nicsWithin = 5 * time.Second
	// wakeGather is how long changes of the log are gathered before they are looked at.
	wakeGather = 10 * time.Millisecond
)

// maxSyncWaits bounds the answers to sync=true that a server owes at once: each looks at
// the state whenever the log changes.
const maxSyncWaits = 1024

// syncWaits counts the answers that wait. Requests at the same time may each find the last
// place: the bound is of work, and not exact.
type syncWaits struct {
	waiting atomic.Int64
	most    int64
}

// codeFailed is the code of VMAPI's answer to a job that failed: restify's, for an error
// without a code of its own.
const codeFailed = "Error"

// answerTask answers 202 with the id of the task that a change made as operation at. With
// sync it answers when the task has ended and the log has what the node says of the VM
// since, so that the next read shows it; if the task failed, with its failure.
func (s *Service) answerTask(w http.ResponseWriter, r *http.Request, sync bool, vm log.UUID, made log.Result, at int) error {
	id := made.IDs[at]
	if sync {
		s.waits.waiting.Add(1)
		defer s.waits.waiting.Add(-1)
		if err := s.awaitTask(w, r, vm, id, made.Last); err != nil {
			return err
		}
	}
	rest.WriteEscaped(w, http.StatusAccepted, map[string]any{"vm_uuid": vm, "job_uuid": id})
	return nil
}

// awaitTask returns when a task has ended and the log has the node's report; made is the
// seq at which it was made.
func (s *Service) awaitTask(w http.ResponseWriter, r *http.Request, vm log.UUID, id string, made log.Seq) error {
	// The answer may come later than others may.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(syncWithin + reportWithin)) // a recorder has none
	ctx, cancel := context.WithTimeout(r.Context(), syncWithin)
	defer cancel()
	var t *log.Task
	ended := s.until(ctx, func(state *projections.State) bool {
		rec, known := state.Get(log.KindTask, id)
		t, _ = rec.Object.(*log.Task)
		return !known || t.Ended()
	})
	switch {
	case r.Context().Err() != nil:
		return r.Context().Err() // the client is gone, or this server stops
	case !ended:
		return fail(http.StatusInternalServerError, codeFailed, "polling for job timed out: job %s has not ended within %v; read GET /jobs/%s", id, syncWithin, id)
	case t == nil:
		return fail(http.StatusInternalServerError, codeFailed, "job %s was deleted before it ended", id)
	case t.Status == log.TaskFailure:
		return fail(http.StatusInternalServerError, codeFailed, "%s", t.Failure)
	}
	ctx, cancel = context.WithTimeout(r.Context(), reportWithin)
	defer cancel()
	left := leftBy(t)
	if !s.until(ctx, func(state *projections.State) bool { return left.isIn(state, vm, made) }) {
		return fail(http.StatusInternalServerError, codeFailed, "job %s has succeeded, and compute node %s has not reported the VM since: look at rutter agent status there", id, t.ServerUUID)
	}
	if left.destroyed { // the node takes its NICs from the log by another report
		ctx, cancel := context.WithTimeout(r.Context(), nicsWithin)
		defer cancel()
		s.until(ctx, func(state *projections.State) bool {
			for range state.NICsOf(vm) {
				return false
			}
			return true
		})
	}
	return nil
}

// left is what a task left of a VM, by its result.
type left struct {
	destroyed bool
	removed   []log.MAC // NICs that the VM has not any more
	state     string    // "": the result does not say
	modified  log.Time
}

func leftBy(t *log.Task) left {
	var result struct {
		VM *struct {
			State    string `json:"state"`
			Modified string `json:"last_modified"`
		} `json:"vm"`
	}
	l := left{destroyed: t.Task == "machine_destroy"}
	if json.Unmarshal([]byte(t.Result), &result) == nil && result.VM != nil {
		if at, err := log.ParseTime(result.VM.Modified); err == nil {
			l.state, l.modified = result.VM.State, at
		}
	}
	var params provision.Made
	if json.Unmarshal([]byte(t.Params), &params) == nil && t.Task == provision.UpdateTask {
		l.removed = params.Removed
	}
	return l
}

// isIn reports whether the log has it: the report of that very moment, or a later one. A
// later one with another state counts if the VM was written after the task was made: it
// may have gone on, as a VM that ended as soon as it was started.
func (l *left) isIn(state *projections.State, id log.UUID, made log.Seq) bool {
	rec, known := state.Get(log.KindVM, id.String())
	vm, _ := rec.Object.(*log.VM)
	if l.destroyed {
		return !known || vm.State == destroyed
	}
	for _, mac := range l.removed {
		if nic, has := state.Get(log.KindNIC, mac.String()); has && nic.Object.(*log.NIC).BelongsToUUID == id {
			return false
		}
	}
	switch {
	case !known || l.state == "" || vm.LastModified == l.modified:
		return true
	case vm.LastModified < l.modified:
		return false
	}
	return vm.State == l.state || rec.Seq > made
}

// until calls is with the state, now and whenever it has changed, until it returns true,
// or ctx ends; it returns which.
func (s *Service) until(ctx context.Context, is func(state *projections.State) bool) (in bool) {
	for {
		changed := s.cfg.Store.Changed()
		if s.cfg.Store.View(func(state *projections.State, _ log.Cursor) { in = is(state) }); in {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
		select { // one look for all that comes together
		case <-time.After(wakeGather):
		case <-ctx.Done():
		}
	}
}
