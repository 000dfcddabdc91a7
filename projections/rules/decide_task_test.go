package rules

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections"
	"rutter/projections/internal/worldtest"
)

// taskRefusals are operations on the settled world with tasks #61# queued, #62#
// active, claimed by incarnation 5, #63# complete, and #64# active at server s1;
// tickets #71# active and #72# queued of one line.
var taskRefusals = []struct{ op, want string }{
	{`create task {"id": "#65#", "task": "nop", "server_uuid": "#11#"}`, ``},
	{`create task {"task": "no p", "server_uuid": "#11#"}`, `task: "no p" is no task`},
	{`create task {"server_uuid": "#11#"}`, `task: "" is no task`},
	{`create task {"task": "nop", "server_uuid": "#19#"}`, `server_uuid: there is no server #19#`},
	{`create task {"task": "nop", "server_uuid": "#11#", "status": "complete"}`, `status: a new task is queued, and nobody's yet`},
	{`create task {"task": "nop", "server_uuid": "#11#", "params": "[1]"}`, `params: it is not JSON of the form`},
	{`create task {"task": "nop", "server_uuid": "#11#", "params": "{"}`, `params: it is not JSON of the form`},
	{`create task {"task": "nop", "server_uuid": "#11#", "via": "pigeon"}`, `via: "pigeon" is not known`},
	{`create task {"task": "nop", "server_uuid": "#11#", "timeout": 999999}`, `timeout: 999999 seconds are over`},
	{`create task {"task": "nop", "server_uuid": "#11#", "params": "{\"x\":\"` + strings.Repeat("x", projections.MaxTaskBytes) + `\"}"}`, `bytes are over`},
	{`update task #61# {"status": "active", "claimed_by": 3}`, ``},
	{`update task #61# {"status": "active"}`, `claimed_by: Missing parameter`},
	{`update task #61# {"status": "complete", "claimed_by": 3}`, `is nobody's yet: claim it first`},
	{`update task #61# {"status": "failure", "failure": "given up"}`, ``},
	{`update task #61# {"status": "failure"}`, `failure: Missing parameter`},
	{`update task #61# {"params": "{\"a\":1}"}`, `params: Task updates for this field are not supported`},
	{`update task #62# {"status": "active", "claimed_by": 5}`, ``},
	{`update task #62# {"status": "active", "claimed_by": 6}`, `was claimed by incarnation 5`},
	{`update task #62# {"status": "complete", "claimed_by": 5, "result": "{}"}`, ``},
	{`update task #62# {"status": "complete", "claimed_by": 6}`, `was claimed by incarnation 5`},
	{`update task #62# {"status": "failure", "failure": "interrupted", "claimed_by": 4}`, `was claimed by incarnation 5`},
	{`update task #62# {"status": "failure", "failure": "interrupted", "claimed_by": 6}`, ``},
	{`update task #62# {"status": "queued", "claimed_by": 5}`, `is not queued again`},
	{`update task #62# {"status": "complete"}`, `claimed_by: Missing parameter`},
	{`update task #63# {"status": "failure", "failure": "late", "claimed_by": 5}`, `task #63# is complete`},
	{`update task #64# {"status": "complete", "claimed_by": 5, "claimant": "s2"}`, `was claimed by incarnation 5`},
	{`update task #64# {"status": "failure", "failure": "x", "claimed_by": 9, "claimant": "s1"}`, `was claimed by incarnation 5`},
	{`delete task #61#`, `InUse: task #61# is queued: it has not ended`},
	{`delete task #63#`, ``},
	{`delete task #69#`, `ResourceNotFound: task not found`},

	{`create ticket {"server_uuid": "#11#", "id": "a"}`, `scope: Missing parameter`},
	{`create ticket {"server_uuid": "#19#", "scope": "vm", "id": "a"}`, `server_uuid: there is no server #19#`},
	{`create ticket {"server_uuid": "#11#", "scope": "vm", "id": "a", "expires_at": "1970-01-01T00:00:01.000Z"}`, `expires_at:`},
	{`create ticket {"server_uuid": "#11#", "scope": "vm", "id": "a", "status": "active"}`, `status: a new ticket is queued`},
	{`update ticket #72# {"status": "active"}`, `status: a ticket becomes active by itself`},
	{`update ticket #72# {"status": "gone"}`, `status: "gone" is not known`},
	{`update ticket #72# {"scope": "other"}`, `scope: Ticket updates for this field are not supported`},
	{`delete ticket #71#`, ``},

	{`update server #11# {"sysinfo": "[]"}`, `sysinfo: it is not JSON of the form`},
	{`update server #11# {"sysinfo": "{\"x\":\"` + strings.Repeat("x", maxSysinfoBytes) + `\"}"}`, `sysinfo: 32776 bytes are over 32768`},
	{`update server #11# {"agents": ["x"]}`, `agents.0: it is not JSON of the form`},
	{`update server #11# {"reservation_ratio": "1.5"}`, `reservation_ratio: "1.5" is no part of the whole`},
	{`update server #11# {"reservation_ratio": "0.15", "traits": "{\"ssd\":true}", "transitional_status": "rebooting"}`, ``},
	{`update server #11# {"transitional_status": "dancing"}`, `transitional_status: "dancing" is not known`},
	{`update server #11# {"agent_port": 65536}`, `agent_port: 65536 is no port`},
	{`delete server #11#`, `InUse: server is in use`},
}

func taskWorld(t changetest.Tester) *worldtest.World {
	w := worldtest.Settled(t, Decide)
	for n := range 4 {
		via := ""
		if n == 3 {
			via = `, "via": "http"`
		}
		w.Must(fmt.Sprintf(`create task {"id": "#%d#", "task": "nop", "server_uuid": "#11#"%s}`, 61+n, via))
	}
	w.Must(`update task #62# {"status": "active", "claimed_by": 5}`)
	w.Must(`update task #63# {"status": "active", "claimed_by": 5}`)
	w.Must(`update task #63# {"status": "complete", "claimed_by": 5}`)
	w.Must(`update task #64# {"status": "active", "claimed_by": 5, "claimant": "s1"}`)
	w.Must(`create ticket {"uuid": "#71#", "server_uuid": "#11#", "scope": "vm", "id": "a"}`)
	w.Must(`create ticket {"uuid": "#72#", "server_uuid": "#11#", "scope": "vm", "id": "a"}`)
	return w
}

func TestTaskRefusals(t *testing.T) {
	for _, c := range taskRefusals {
		w := taskWorld(t)
		result := w.Try(w.Change(changetest.Op(t, c.op)))
		want, got := changetest.Expand(c.want), "accepted"
		if result.Refusal != nil {
			got = result.Refusal.Error()
		}
		if want == "" && got != "accepted" || want != "" && !strings.Contains(got, want) {
			t.Errorf("%.200s\n got %s\nwant %s", c.op, got, want)
		}
	}
}

// A claim after the deadline comes too late, from any author.
func TestTaskDeadline(t *testing.T) {
	w := taskWorld(t)
	w.Now += defaultTaskTimeout * second
	op := changetest.Op(t, `update task #61# {"status": "active", "claimed_by": 3}`)
	if r := w.Try(w.Change(op)); r.Refusal == nil || !strings.Contains(r.Refusal.Error(), "was to be done by") {
		t.Errorf("got %v, want it too late", r.Refusal)
	}
}

func TestOpenTasksAreBounded(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	for n := range maxOpenTasks {
		w.Must(fmt.Sprintf(`create task {"id": "%s", "task": "nop", "server_uuid": "#11#"}`, changetest.UUID(uint64(1000+n))))
	}
	op := changetest.Op(t, `create task {"task": "nop", "server_uuid": "#11#"}`)
	if r := w.Try(w.Change(op)); r.Refusal == nil || !strings.Contains(r.Refusal.Error(), "256 tasks that are not done") {
		t.Errorf("got %v, want it refused", r.Refusal)
	}
	w.Must(`update task ` + changetest.UUID(1000).String() + ` {"status": "failure", "failure": "given up"}`)
	w.Must(`create task {"task": "nop", "server_uuid": "#11#"}`)
}

// However tickets come, go, are released and expire, in changes of one operation
// or several: of each line one is active, and it is the first of those that wait.
func TestLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := worldtest.Settled(t, Decide)
		next := 100
		var order []string // of one line, oldest first, with what is gone too
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			var ops []log.Op
			for range rapid.IntRange(1, 3).Draw(t, "ops") {
				waiting := waitingTickets(w.State)
				kind := rapid.IntRange(0, 3).Draw(t, "kind")
				if len(waiting) == 0 || kind == 0 {
					uuid := changetest.UUID(uint64(next)).String()
					next++
					order = append(order, uuid)
					ops = append(ops, changetest.Op(w.T, fmt.Sprintf(`create ticket {"uuid": "%s", "server_uuid": "#11#", "scope": "vm", "id": "a"}`, uuid)))
					continue
				}
				one := rapid.SampledFrom(waiting).Draw(t, "ticket")
				switch kind {
				case 1:
					ops = append(ops, changetest.Op(w.T, `update ticket `+one+` {"status": "finished"}`))
				case 2:
					ops = append(ops, changetest.Op(w.T, `update ticket `+one+` {"status": "expired"}`))
				default:
					ops = append(ops, changetest.Op(w.T, `delete ticket `+one))
				}
			}
			w.Try(w.Change(ops...)) // one that names a ticket twice may be refused
			checkLine(t, w.State, order)
		}
	})
}

func waitingTickets(s *projections.State) (ids []string) {
	for r := range s.TicketsBy(true) {
		ids = append(ids, r.Object.ID())
	}
	return ids
}

func checkLine(t *rapid.T, s *projections.State, order []string) {
	first := true
	for _, uuid := range order {
		r, ok := s.Get(log.KindTicket, uuid)
		if !ok || !r.Object.(*log.Ticket).Waits() {
			continue
		}
		if got := r.Object.(*log.Ticket).Status; first != (got == log.TicketActive) {
			t.Fatalf("ticket %s is %s; it is the first that waits: %v", uuid, got, first)
		}
		first = false
	}
}

func TestTasksAreOfTheirCN(t *testing.T) {
	w := taskWorld(t)
	scopes := w.State.ScopesOf(log.KindTask, changetest.UUID(61).String())
	if len(scopes) != 1 || scopes[0] != log.CNScope(changetest.UUID(11)) {
		t.Errorf("scopes %v", scopes)
	}
	var open, all int
	for range w.State.OpenTasksOn(changetest.UUID(11)) {
		open++
	}
	for range w.State.TasksOn(changetest.UUID(11)) {
		all++
	}
	if open != 3 || all != 4 {
		t.Errorf("%d open of %d tasks, want 3 of 4", open, all)
	}
}
