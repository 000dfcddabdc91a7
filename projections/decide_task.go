package projections

import (
	"encoding/json"
	"fmt"
	"strings"

	"rutter/log"
)

// Bounds of tasks, tickets and what a server says of itself.
const (
	MaxSysinfoBytes = 32 << 10 // of a server: each event of the server carries it
	MaxAgents       = 64       // programs that a server names
	MaxFieldJSON    = 4 << 10  // bytes of one field that is JSON in text
	MaxTaskBytes    = 64 << 10 // of a task's params, and of its result
	MaxTaskHistory  = 32       // entries of a task
	MaxTaskTimeout  = 7 * 24 * 3600
	MaxOpenTasks    = 256  // of one CN; more are refused until some are done
	MaxLine         = 1024 // tickets that wait for one thing

	defaultTaskTimeout = 3600 // seconds, as CNAPI's wait (spec/cnapi.md section 4.4)
	defaultTicketTime  = 3600 // seconds
)

// line is what tickets wait for.
type line struct {
	cn        log.UUID
	scope, id string
}

func lineOf(t *log.Ticket) line { return line{t.ServerUUID, t.Scope, t.OfID} }

const second = 1_000_000_000 // nanoseconds

func (d *draft) fillTask(t *log.Task) {
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
	t.Deadline = d.time + log.Time(min(t.Timeout, MaxTaskTimeout)*second)
	if t.Status != log.TaskQueued || t.ClaimedBy != 0 || t.Claimant != "" || t.Started != 0 || t.Finished != 0 || t.Failure != "" || t.Result != "" {
		d.bad("status", "a new task is queued, and nobody's yet", "leave out all that speaks of how it goes")
	}
	d.needServer(t.ServerUUID)
	open := 0
	for range d.rows(func(s *store) *sorted[*row] { return s.openTasks[t.ServerUUID] }) {
		open++
	}
	if open >= MaxOpenTasks {
		d.bad("server_uuid", fmt.Sprintf("the server has %d tasks that are not done", open), "wait until some are, or see why its agent does not take them")
	}
}

// needServer refuses what is about a server that is not there.
func (d *draft) needServer(cn log.UUID) {
	if _, ok := d.find(log.KindServer, string(cn[:])); !ok {
		d.bad("server_uuid", fmt.Sprintf("there is no server %s", cn), "send the UUID of a server; one is made when its sysinfo comes")
	}
}

// settleTask decides who may say what of a task that there is: one claims it, and
// that one alone tells how it went. A later incarnation of a CN, which found it
// active and has no result of it, can only give it up.
func (d *draft) settleTask(before, after *log.Task, op *log.Op) {
	if log.Equal(before, after) {
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

func (d *draft) checkTask(t *log.Task) {
	if odd := strings.ContainsFunc(taskWords.Replace(t.Task), func(r rune) bool { return !isWordRune(r) }); odd || t.Task == "" || len(t.Task) > MaxNameBytes {
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
	if t.Timeout > MaxTaskTimeout {
		d.bad("timeout", fmt.Sprintf("%d seconds are over %d", t.Timeout, MaxTaskTimeout), "send fewer")
	}
	d.checkText("req_id", t.ReqID)
	d.checkText("claimant", t.Claimant)
	d.checkText("failure", t.Failure)
	d.checkJSON("params", t.Params, MaxTaskBytes, '{')
	d.checkJSON("result", t.Result, MaxTaskBytes, 0)
	d.checkTexts("history", t.History, MaxTaskHistory)
	if t.Status == log.TaskFailure && t.Failure == "" {
		d.missing("failure", "say why it failed")
	}
}

// checkJSON: text that readers take for JSON must be; first, if not 0, is what it
// begins with.
func (d *draft) checkJSON(field, text string, most int, first byte) {
	switch {
	case text == "":
	case len(text) > most:
		d.bad(field, fmt.Sprintf("%d bytes are over %d", len(text), most), "send less")
	case !json.Valid([]byte(text)) || first != 0 && text[0] != first:
		d.bad(field, "it is not JSON of the form that is wanted", "send the text of a JSON value, an object where the field's name is a plural or params")
	}
}

// checkTexts: a list of JSON objects in text.
func (d *draft) checkTexts(field string, list []string, most int) {
	if len(list) > most {
		d.bad(field, fmt.Sprintf("%d entries are over %d", len(list), most), "send fewer")
		return
	}
	for i, text := range list {
		d.checkJSON(fmt.Sprintf("%s.%d", field, i), text, MaxFieldJSON, '{')
	}
}

// checkServerForms checks what CNAPI keeps of a server beside its names.
func (d *draft) checkServerForms(s *log.Server) {
	d.checkJSON("sysinfo", s.Sysinfo, MaxSysinfoBytes, '{')
	d.checkTexts("agents", s.Agents, MaxAgents)
	d.checkJSON("boot_params", s.BootParams, MaxFieldJSON, '{')
	d.checkJSON("boot_modules", s.BootModules, MaxFieldJSON, '[')
	d.checkJSON("kernel_flags", s.KernelFlags, MaxFieldJSON, '{')
	d.checkJSON("overprovision_ratios", s.OverprovisionRatio, MaxFieldJSON, '{')
	d.checkJSON("traits", s.Traits, MaxFieldJSON, '{')
	d.checkText("boot_platform", s.BootPlatform)
	d.checkText("default_console", s.DefaultConsole)
	if !isFraction(s.ReservationRatio) {
		d.bad("reservation_ratio", fmt.Sprintf("\"%s\" is no part of the whole", d.show(s.ReservationRatio)), "send a number from 0 to 1, as in 0.15")
	}
	if s.TransitionalStatus != "" && s.TransitionalStatus != "rebooting" {
		d.bad("transitional_status", fmt.Sprintf("\"%s\" is not known", d.show(s.TransitionalStatus)), "send rebooting, or nothing")
	}
	if s.AgentPort > 65535 {
		d.bad("agent_port", fmt.Sprintf("%d is no port", s.AgentPort), "send one of 1 to 65535")
	}
}

// maxFraction bounds the digits of a ratio.
const maxFraction = 10

// isFraction reports whether text is "", or a number from 0 to 1 without exponent.
func isFraction(text string) bool {
	whole, part, _ := strings.Cut(text, ".")
	if len(text) > maxFraction || strings.ContainsFunc(part, func(r rune) bool { return r < '0' || r > '9' }) {
		return false
	}
	switch whole {
	case "":
		return text == "" || part != ""
	case "0":
		return true
	case "1":
		return strings.Trim(part, "0") == ""
	}
	return false
}

func (d *draft) fillTicket(t *log.Ticket) {
	t.Created, t.Updated = d.time, d.time
	if t.Expires == 0 {
		t.Expires = d.time + defaultTicketTime*second
	}
	if t.Expires <= d.time {
		d.bad("expires_at", fmt.Sprintf("%s is over", t.Expires), "send a time to come, or leave it out for an hour")
	}
	if t.Status != "" && t.Status != log.TicketQueued {
		d.bad("status", "a new ticket is queued", "leave it out")
	}
	d.needServer(t.ServerUUID)
	t.Status, t.Place = log.TicketActive, 1
	waiting := 0
	for o := range d.rows(func(s *store) *sorted[*row] { return s.lines[lineOf(t)] }) {
		t.Status, t.Place = log.TicketQueued, max(t.Place, o.(*log.Ticket).Place+1)
		waiting++
	}
	if waiting >= MaxLine {
		d.bad("id", fmt.Sprintf("%d tickets wait for it", waiting), "wait until some are released")
	}
}

// settleTicket: a ticket ends once, and its turn comes by itself.
func (d *draft) settleTicket(before, after *log.Ticket) {
	if log.Equal(before, after) {
		return
	}
	if !before.Waits() {
		d.refuse(log.CodePreconditionFailed, fmt.Sprintf("ticket %s is %s", before.UUID, before.Status))
		return
	}
	if after.Waits() && after.Status != before.Status {
		d.bad("status", fmt.Sprintf("a ticket becomes %s by itself", d.show(after.Status)), "release the one before it")
	}
	after.Updated = d.time
}

func (d *draft) checkTicket(t *log.Ticket) {
	for _, f := range []struct{ name, text string }{{"scope", t.Scope}, {"id", t.OfID}} {
		if f.text == "" {
			d.missing(f.name, "say what the ticket is for")
		}
		d.checkText(f.name, f.text)
	}
	switch t.Status {
	case log.TicketQueued, log.TicketActive, log.TicketFinished, log.TicketExpired:
	default:
		d.bad("status", fmt.Sprintf("\"%s\" is not known", d.show(t.Status)), "send finished to release it")
	}
	d.checkText("action", t.Action)
	d.checkText("reqid", t.ReqID)
	d.checkJSON("extra", t.Extra, MaxFieldJSON, 0)
}

// follow makes the event that follows from one on a ticket: the next in its line
// has its turn when the active one left.
func (d *draft) follow(before, after log.Object) {
	left, ok := before.(*log.Ticket)
	if now, is := after.(*log.Ticket); !ok || left.Status != log.TicketActive || is && now.Waits() {
		return
	}
	var next *log.Ticket
	for o := range d.rows(func(s *store) *sorted[*row] { return s.lines[lineOf(left)] }) {
		t := o.(*log.Ticket)
		if t.UUID != left.UUID && (next == nil || t.Place < next.Place) {
			next = t
		}
	}
	if next == nil {
		return
	}
	r, _ := d.find(log.KindTicket, string(next.UUID[:]))
	turned := log.Clone(next).(*log.Ticket)
	turned.Status, turned.Updated = log.TicketActive, d.time
	d.emit(r, turned)
}

// indexTask and the like keep the indexes of tasks and tickets.
func (s *store) indexTask(r *row, t *log.Task) {
	addSet(s.tasksOn, t.ServerUUID, r)
	if !t.Ended() {
		addSet(s.openTasks, t.ServerUUID, r)
	}
	s.tasksBy.add(t.Ended(), r, compareRows)
}

func (s *store) unindexTask(r *row, t *log.Task) {
	s.tasksOn.remove(t.ServerUUID, r)
	s.openTasks.remove(t.ServerUUID, r)
	s.tasksBy.remove(t.Ended(), r)
}

func (s *store) indexTicket(r *row, t *log.Ticket) {
	addSet(s.ticketsOn, t.ServerUUID, r)
	if t.Waits() {
		s.lines.add(lineOf(t), r, compareRows)
	}
	s.ticketsBy.add(t.Waits(), r, compareRows)
}

func (s *store) unindexTicket(r *row, t *log.Ticket) {
	s.ticketsOn.remove(t.ServerUUID, r)
	s.lines.remove(lineOf(t), r)
	s.ticketsBy.remove(t.Waits(), r)
}
