package rules

import (
	"fmt"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// Bounds of tasks.
const (
	maxTaskHistory = 32 // entries of a task
	maxTaskTimeout = 7 * 24 * 3600
	maxOpenTasks   = 256 // of one CN; more are refused until some are done

	defaultTaskTimeout = 3600 // seconds, as CNAPI's wait (spec/cnapi.md section 4.4)
)

var taskRules = hooks[*log.Task]{
	fill:   fillTask,
	settle: settleTask,
	check:  checkTask,
	remove: func(d *draft, t *log.Task) {
		if !t.Ended() {
			d.refuse(log.CodeInUse, "task "+t.ID()+" is "+t.Status+": it has not ended", usedBy("id", "server", t.ServerUUID.String(), "wait for its end, or set its status to failure with the reason"))
		}
	},
	owns: func(_ *draft, cn log.UUID, t *log.Task) bool { return t.ServerUUID == cn },
}

const second = 1_000_000_000 // nanoseconds

func fillTask(d *draft, t *log.Task, _ *log.Op) {
	if t.Status == "" {
		t.Status = log.TaskQueued
	}
	if t.Via == "" {
		t.Via = log.ViaFeed
	}
	if t.Timeout == 0 {
		t.Timeout = defaultTaskTimeout
	}
	t.Created = d.time
	t.Deadline = d.time + log.Time(min(t.Timeout, maxTaskTimeout)*second)
	if t.Status != log.TaskQueued || t.ClaimedBy != 0 || t.Claimant != "" || t.Started != 0 || t.Finished != 0 || t.Failure != "" || t.Result != "" {
		d.bad("status", "a new task is queued, and nobody's yet", "leave out all that speaks of how it goes")
	}
	needServer(d, t.ServerUUID)
	open := 0
	for range d.Objects(projections.OpenTasksOn(t.ServerUUID)) {
		open++
	}
	if open >= maxOpenTasks {
		d.bad("server_uuid", fmt.Sprintf("the server has %d tasks that are not done", open), "wait until some are, or see why its agent does not take them")
	}
}

// settleTask decides who may say what of a task that there is: one claims it, and
// that one alone tells how it went. A later incarnation of a CN, which found it
// active and has no result of it, can only give it up.
func settleTask(d *draft, before, after *log.Task, op *log.Op) {
	if before == nil || log.Equal(before, after) {
		return
	}
	refuse := func(format string, args ...any) {
		message := fmt.Sprintf(format, args...)
		d.refuse(log.CodePreconditionFailed, message, log.FieldError{
			Field: "status", Code: log.ElementInvalid, Message: message, Remedy: "read the task: it is somebody else's, or done",
		})
	}
	claims := given(op, "claimed_by")
	switch {
	case before.Ended():
		refuse("task %s is %s", before.UUID, before.Status)
		return
	case before.Status == log.TaskQueued && after.Status == log.TaskActive:
		if after.ClaimedBy == 0 {
			d.missing("claimed_by", "send the incarnation of who does the task")
		}
		if before.Deadline < d.time {
			refuse("task %s was to be done by %s", before.UUID, before.Deadline)
		}
		after.Started = d.time
		return
	case after.Status == log.TaskQueued && before.Status != log.TaskQueued:
		refuse("task %s is %s: it is not queued again", before.UUID, before.Status)
		return
	case !claims && after.Status != log.TaskFailure:
		d.missing("claimed_by", "send the incarnation that claimed the task")
	case claims && before.Status == log.TaskQueued:
		refuse("task %s is nobody's yet: claim it first", before.UUID)
	case claims && (after.ClaimedBy != before.ClaimedBy || after.Claimant != before.Claimant):
		if after.ClaimedBy < before.ClaimedBy || after.Status != log.TaskFailure || before.Via != log.ViaFeed {
			refuse("task %s was claimed by incarnation %d", before.UUID, before.ClaimedBy)
		}
		after.ClaimedBy, after.Claimant = before.ClaimedBy, before.Claimant
	}
	if after.Ended() {
		after.Finished = d.time
	}
}

var taskWords = strings.NewReplacer("_", "", "-", "", ".", "")

func checkTask(d *draft, _, t *log.Task, _ *log.Op) {
	if odd := strings.ContainsFunc(taskWords.Replace(t.Task), func(r rune) bool { return !isWordRune(r) }); odd || t.Task == "" || len(t.Task) > projections.MaxNameBytes {
		d.bad("task", fmt.Sprintf("\"%s\" is no task", d.show(t.Task)), "send a word such as nop or machine_start")
	}
	switch t.Status {
	case log.TaskQueued, log.TaskActive, log.TaskComplete, log.TaskFailure:
	default:
		d.bad("status", fmt.Sprintf("\"%s\" is not known", d.show(t.Status)), "send queued, active, complete or failure")
	}
	if t.Via != log.ViaFeed && t.Via != log.ViaHTTP {
		d.bad("via", fmt.Sprintf("\"%s\" is not known", d.show(t.Via)), "send feed or http")
	}
	if t.Timeout > maxTaskTimeout {
		d.bad("timeout", fmt.Sprintf("%d seconds are over %d", t.Timeout, maxTaskTimeout), "send fewer")
	}
	d.checkText("req_id", t.ReqID)
	d.checkText("claimant", t.Claimant)
	d.checkText("failure", t.Failure)
	d.checkJSON("params", t.Params, projections.MaxTaskBytes, '{')
	d.checkJSON("result", t.Result, projections.MaxTaskBytes, 0)
	d.checkTexts("history", t.History, maxTaskHistory)
	if t.Status == log.TaskFailure && t.Failure == "" {
		d.missing("failure", "say why it failed")
	}
}
