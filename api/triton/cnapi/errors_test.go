package cnapi

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

// said puts an answer into one line: STATUS CODE: MESSAGE, and for each field
// that it names | FIELD CODE: MESSAGE.
func said(t *testing.T, status int, body []byte) string {
	t.Helper()
	var answer struct {
		Code, Message string
		Errors        []struct{ Field, Code, Message string }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	line := fmt.Sprintf("%d %s: %s", status, answer.Code, answer.Message)
	for _, e := range answer.Errors {
		line += fmt.Sprintf(" | %s %s: %s", e.Field, e.Code, e.Message)
	}
	return line
}

// What is refused, on each path: status, code and message, and of each field
// that is wrong its name, code and message (spec/cnapi.md).
func TestBadInput(t *testing.T) {
	s := newService(t, newMemory(), nil)
	task := ask(t, s, "POST /servers/"+cn1+"/nop", "", 200)["id"].(string)
	ticket := ask(t, s, "POST /servers/"+cn1+"/tickets", `{"scope":"vm","id":"ended"}`, 202)["uuid"].(string)
	ask(t, s, "PUT /tickets/"+ticket+"/release", "", 204)
	names := strings.NewReplacer("CN1", cn1, "CN2", cn2, "VM1", vm1, "TASK", task, "TICKET", ticket,
		"LONG2", strings.Repeat("x", 70_000), "LONG", strings.Repeat("x", 40_000))
	for _, c := range []struct{ what, request, body, want string }{
		{"no UUID in the path", "GET /servers/x", ``, `422 InvalidParameters: Invalid parameters | server_uuid InvalidParameter: "x" is not a UUID`},
		{"a UUID of nothing", "GET /servers/00000000-0000-0000-0000-000000000000", ``, `422 InvalidParameters: Invalid parameters | server_uuid InvalidParameter: "00000000-0000-0000-0000-000000000000" is not a UUID`},
		{"unknown server", "GET /servers/CN2", ``, `404 ResourceNotFound: server not found`},
		{"unknown filter", "GET /servers?color=red", ``, `409 InvalidArgument: color is not an explicitly defined parameter`},
		{"flag of neither", "GET /servers?setup=yes", ``, "500 InvalidParameters: Request parameters failed validation | setup Invalid: Invalid value for param 'setup'"},
		{"limit of 0", "GET /servers?limit=0", ``, `400 InvalidParameters: Request parameters failed validation | limit Invalid: limit must be in the range 1-1000 (inclusive)`},
		{"limit over 1000", "GET /servers?limit=1001", ``, `400 InvalidParameters: Request parameters failed validation | limit Invalid: limit must be in the range 1-1000 (inclusive)`},
		{"limit of no number", "GET /servers?limit=all", ``, "500 InvalidParameters: Request parameters failed validation | limit Invalid: Invalid value for param 'limit'"},
		{"offset below 0", "GET /servers?offset=-1", ``, "500 InvalidParameters: Request parameters failed validation | offset Invalid: Invalid value for param 'offset'"},
		{"nothing to update", "POST /servers/CN1", `{}`, `422 InvalidParameters: Invalid parameters | body InvalidParameter: there is nothing to update`},
		{"body of no JSON", "POST /servers/CN1", `[`, `400 BadRequest: the body is not a JSON object: unexpected end of JSON input`},
		{"body of no object", "POST /servers/CN1", `[1]`, `400 BadRequest: the body is not a JSON object: it is no object, but of kind array`},
		{"unknown field", "POST /servers/CN1", `{"color":"red"}`, `409 InvalidArgument: color is not an explicitly defined parameter`},
		{"status is not written", "POST /servers/CN1", `{"status":"running"}`, `409 InvalidArgument: status is not an explicitly defined parameter`},
		{"last_heartbeat is not written", "POST /servers/CN1", `{"last_heartbeat":"2026-11-21T12:00:00.000Z"}`, `409 InvalidArgument: last_heartbeat is not an explicitly defined parameter`},
		{"agents of no list", "POST /servers/CN1", `{"agents":{}}`, `422 InvalidParameters: Invalid parameters | agents InvalidParameter: it is no list, but of kind object`},
		{"agents of no objects", "POST /servers/CN1", `{"agents":[7]}`, `422 InvalidParameters: Invalid parameters | agents.0 InvalidParameter: it is not JSON of the form that is wanted`},
		{"reserved of no boolean", "POST /servers/CN1", `{"reserved":"no"}`, `422 InvalidParameters: Invalid parameters | reserved InvalidParameter: got a JSON string`},
		{"hostname of no text", "POST /servers/CN1", `{"hostname":7}`, `422 InvalidParameters: Invalid parameters | hostname InvalidParameter: got a JSON number`},
		{"boot_params of no object", "POST /servers/CN1", `{"boot_params":[]}`, `422 InvalidParameters: Invalid parameters | boot_params InvalidParameter: it is not JSON of the form that is wanted`},
		{"boot_params of a text", "POST /servers/CN1", `{"boot_params":"x"}`, `422 InvalidParameters: Invalid parameters | boot_params InvalidParameter: it is not JSON of the form that is wanted`},
		{"traits of a list", "POST /servers/CN1", `{"traits":["ssd"]}`, `422 InvalidParameters: Invalid parameters | traits InvalidParameter: it is not JSON of the form that is wanted`},
		{"kernel_flags of a number", "POST /servers/CN1", `{"kernel_flags":7}`, `422 InvalidParameters: Invalid parameters | kernel_flags InvalidParameter: it is not JSON of the form that is wanted`},
		{"overprovision_ratios of a list", "POST /servers/CN1", `{"overprovision_ratios":[1]}`, `422 InvalidParameters: Invalid parameters | overprovision_ratios InvalidParameter: it is not JSON of the form that is wanted`},
		{"reservation_ratio over 1", "POST /servers/CN1", `{"reservation_ratio":7}`, `422 InvalidParameters: Invalid parameters | reservation_ratio InvalidParameter: "7" is no part of the whole`},
		{"reservation_ratio below 0", "POST /servers/CN1", `{"reservation_ratio":-0.5}`, `422 InvalidParameters: Invalid parameters | reservation_ratio InvalidParameter: "-0.5" is no part of the whole`},
		{"reservation_ratio of no number", "POST /servers/CN1", `{"reservation_ratio":"half"}`, `422 InvalidParameters: Invalid parameters | reservation_ratio InvalidParameter: "half" is no part of the whole`},
		{"transitional_status unknown", "POST /servers/CN1", `{"transitional_status":"sleeping"}`, `422 InvalidParameters: Invalid parameters | transitional_status InvalidParameter: "sleeping" is not known`},
		{"created of no time", "POST /servers/CN1", `{"created":"yesterday"}`, `422 InvalidParameters: Invalid parameters | created InvalidParameter: time "yesterday": want RFC 3339, as in 2026-11-21T09:00:00.123Z`},
		{"ram of no number", "POST /servers/CN1", `{"ram":"much"}`, `422 InvalidParameters: Invalid parameters | ram InvalidParameter: got a JSON string`},
		{"update of nothing", "POST /servers/CN2", `{"comments":"x"}`, `404 ResourceNotFound: server not found`},
		{"delete of nothing", "DELETE /servers/CN2", ``, `404 ResourceNotFound: server not found`},
		{"sysinfo missing", "POST /servers/CN1/sysinfo", `{}`, `422 InvalidParameters: Missing parameters | sysinfo MissingParameter: Missing parameter`},
		{"sysinfo of no object", "POST /servers/CN1/sysinfo", `{"sysinfo":7}`, `422 InvalidParameters: Invalid parameters | sysinfo InvalidParameter: it is no JSON object`},
		{"sysinfo of another", "POST /servers/CN1/sysinfo", `{"sysinfo":{"UUID":"CN2"}}`, `422 InvalidParameters: Invalid parameters | sysinfo.UUID InvalidParameter: it is of CN2`},
		{"sysinfo UUID of none", "POST /servers/CN1/sysinfo", `{"sysinfo":{"UUID":"x"}}`, `422 InvalidParameters: Invalid parameters | sysinfo InvalidParameter: UUID: uuid "x": want 36 characters, as in 564d69b1-a178-3fbe-b36f-3f2b7fd7ed31`},
		{"sysinfo memory", "POST /servers/CN1/sysinfo", `{"sysinfo":{"MiB of Memory":"much"}}`, `422 InvalidParameters: Invalid parameters | sysinfo InvalidParameter: MiB of Memory: much is no number from 0 to 1099511627776`},
		{"sysinfo boot time", "POST /servers/CN1/sysinfo", `{"sysinfo":{"Boot Time":-1}}`, `422 InvalidParameters: Invalid parameters | sysinfo InvalidParameter: Boot Time: -1 is no number from 0 to 1099511627776`},
		{"sysinfo agent port", "POST /servers/CN1/sysinfo", `{"sysinfo":{"CN Agent Port":65536}}`, `422 InvalidParameters: Invalid parameters | sysinfo InvalidParameter: CN Agent Port: 65536 is no number from 0 to 65535`},
		{"sysinfo MAC", "POST /servers/CN1/sysinfo", `{"sysinfo":{"Network Interfaces":{"e0":{"MAC Address":"z"}}}}`, `422 InvalidParameters: Invalid parameters | sysinfo InvalidParameter: interface "e0": mac "z": want 12 hexadecimal digits, as in 90:b8:d0:01:02:03`},
		{"sysinfo hostname of no text", "POST /servers/CN1/sysinfo", `{"sysinfo":{"Hostname":7}}`, `422 InvalidParameters: Invalid parameters | sysinfo InvalidParameter: Hostname: it is of kind number`},
		{"sysinfo address", "POST /servers/CN1/sysinfo", `{"sysinfo":{"Network Interfaces":{"e0":{"MAC Address":"00:50:56:34:60:4c","ip4addr":"10.0.0"}}}}`, `422 InvalidParameters: Invalid parameters | sysinfo InvalidParameter: interface "e0": ParseAddr("10.0.0"): IPv4 address too short`},
		{"sysinfo VLAN", "POST /servers/CN1/sysinfo", `{"sysinfo":{"Virtual Network Interfaces":{"e0":{"MAC Address":"00:50:56:34:60:4c","VLAN":"4095"}}}}`, `422 InvalidParameters: Invalid parameters | sysinfo InvalidParameter: interface "e0": VLAN 4095 is no number from 0 to 4094`},
		{"sysinfo disk", "POST /servers/CN1/sysinfo", `{"sysinfo":{"Disks":{"c0":{"Size in GB":"big"}}}}`, `422 InvalidParameters: Invalid parameters | sysinfo InvalidParameter: disk "c0": its size is no number`},
		{"sysinfo too long", "POST /servers/CN1/sysinfo", `{"sysinfo":{"x":"LONG"}}`, `422 InvalidParameters: Invalid parameters | sysinfo InvalidParameter: 40008 bytes, it may have 32768`},
		{"sysinfo to no UUID", "POST /servers/x/sysinfo", `{"sysinfo":{}}`, `422 InvalidParameters: Invalid parameters | server_uuid InvalidParameter: "x" is not a UUID`},
		{"sysinfo of nobody", "GET /servers/CN2/sysinfo", ``, `404 ResourceNotFound: server not found`},
		{"heartbeat of no UUID", "POST /servers/x/events/heartbeat", `{}`, `422 InvalidParameters: Invalid parameters | server_uuid InvalidParameter: "x" is not a UUID`},
		{"status of no JSON", "POST /servers/CN1/events/status", `nonsense`, `400 BadRequest: the body is not a status: invalid character 'o' in literal null (expecting 'u')`},
		{"status of other VMs", "POST /servers/CN1/events/status", `{"vms":[]}`, `400 BadRequest: the body is not a status: it is no object, but of kind array`},
		{"status of no UUID", "POST /servers/x/events/status", `{}`, `422 InvalidParameters: Invalid parameters | server_uuid InvalidParameter: "x" is not a UUID`},
		{"boot unknown field", "PUT /boot/CN1", `{"color":"red"}`, `422 InvalidParameters: Invalid parameters | color InvalidParameter: a boot record has no field "color"`},
		{"boot kernel_args of no object", "PUT /boot/CN1", `{"kernel_args":["a"]}`, `422 InvalidParameters: Invalid parameters | kernel_args InvalidParameter: it is no object, but of kind array`},
		{"boot modules of no list", "PUT /boot/CN1", `{"boot_modules":{}}`, `422 InvalidParameters: Invalid parameters | boot_modules InvalidParameter: it is not JSON of the form that is wanted`},
		{"boot of no UUID", "GET /boot/x", ``, `422 InvalidParameters: Invalid parameters | server_uuid InvalidParameter: "x" is not a UUID`},
		{"boot of nobody", "GET /boot/CN2", ``, `404 ResourceNotFound: server not found`},
		{"boot of nobody written", "PUT /boot/CN2", `{"platform":"p"}`, `404 ResourceNotFound: server not found`},
		{"VMs of nobody", "GET /servers/CN2/vms", ``, `404 ResourceNotFound: server not found`},
		{"VM of no UUID", "GET /servers/CN1/vms/x", ``, `422 InvalidParameters: Invalid parameters | vm_uuid InvalidParameter: "x" is not a UUID`},
		{"VM of another", "GET /servers/CN1/vms/VM1", ``, `404 ResourceNotFound: VM not found on this server`},
		{"task for nobody", "POST /servers/CN2/nop", ``, `404 ResourceNotFound: server not found`},
		{"task of no name", "POST /servers/CN1/tasks", `{}`, `422 InvalidParameters: Missing parameters | task MissingParameter: Missing parameter`},
		{"task of an empty name", "POST /servers/CN1/tasks", `{"task":""}`, `422 InvalidParameters: Missing parameters | task MissingParameter: Missing parameter`},
		{"task of two words", "POST /servers/CN1/tasks", `{"task":"a b"}`, `422 InvalidParameters: Invalid parameters | task InvalidParameter: "a b" is no task`},
		{"task of no text", "POST /servers/CN1/tasks", `{"task":7}`, `422 InvalidParameters: Invalid parameters | task InvalidParameter: 7 is no text`},
		{"task params of no object", "POST /servers/CN1/tasks", `{"task":"nop","params":3}`, `422 InvalidParameters: Invalid parameters | params InvalidParameter: it is no object, but of kind number`},
		{"task timeout of no number", "POST /servers/CN1/tasks", `{"task":"nop","timeout":"soon"}`, `422 InvalidParameters: Invalid parameters | timeout InvalidParameter: "soon" is no number from 1 on`},
		{"task timeout of 0", "POST /servers/CN1/tasks", `{"task":"nop","timeout":0}`, `422 InvalidParameters: Invalid parameters | timeout InvalidParameter: "0" is no number from 1 on`},
		{"task timeout too long", "POST /servers/CN1/tasks", `{"task":"nop","timeout":604801}`, `422 InvalidParameters: Invalid parameters | timeout InvalidParameter: 604801 seconds are over 604800`},
		{"task body of no object", "POST /servers/CN1/nop", `7`, `400 BadRequest: the body is not a JSON object: it is no object, but of kind number`},
		{"task params too long", "POST /servers/CN1/tasks", `{"task":"nop","params":{"x":"LONG2"}}`, `422 InvalidParameters: Invalid parameters | params InvalidParameter: 70008 bytes are over 65536`},
		{"VM task of no UUID", "POST /servers/CN1/vms/x/start", ``, `422 InvalidParameters: Invalid parameters | vm_uuid InvalidParameter: "x" is not a UUID`},
		{"VM task for nobody", "POST /servers/CN2/vms/VM1/start", ``, `404 ResourceNotFound: server not found`},
		{"reboot of a CN of ours", "POST /servers/CN1/reboot", ``, `409 UnsupportedTask: server CN1 has no cn-agent, which would reboot it: stop its VMs and reboot the machine itself`},
		{"reboot of nobody", "POST /servers/CN2/reboot", ``, `404 ResourceNotFound: server not found`},
		{"task unknown", "GET /tasks/CN1", ``, `404 ResourceNotFound: no such task found`},
		{"task of no UUID", "GET /tasks/x", ``, `422 InvalidParameters: Invalid parameters | task_uuid InvalidParameter: "x" is not a UUID`},
		{"wait for no task", "GET /tasks/CN1/wait", ``, `404 ResourceNotFound: no such task found`},
		{"wait for too long", "GET /tasks/TASK/wait?timeout=7201", ``, `422 InvalidParameters: Invalid parameters | timeout InvalidParameter: "7201" is no number from 0 to 7200`},
		{"wait for no number", "GET /tasks/TASK/wait?timeout=soon", ``, `422 InvalidParameters: Invalid parameters | timeout InvalidParameter: "soon" is no number from 0 to 7200`},
		{"tasks of no server", "GET /tasks?server_uuid=x", ``, `422 InvalidParameters: Invalid parameters | server_uuid InvalidParameter: "x" is not a UUID`},
		{"tasks of no state", "GET /tasks?status=done", ``, `422 InvalidParameters: Invalid parameters | status InvalidParameter: "done" is no state of a task`},
		{"tasks by anything", "GET /tasks?color=red", ``, `422 InvalidParameters: Invalid parameters | color InvalidParameter: tasks are not found by "color"`},
		{"tasks limit", "GET /tasks?limit=1001", ``, `422 InvalidParameters: Invalid parameters | limit InvalidParameter: "1001" is no number from 1 to 1000`},
		{"history of no UUID", "GET /servers/x/task-history", ``, `422 InvalidParameters: Invalid parameters | server_uuid InvalidParameter: "x" is not a UUID`},
		{"ticket of no id", "POST /servers/CN1/tickets", `{"scope":"vm"}`, `422 InvalidParameters: Invalid parameters | id MissingParameter: Missing parameter`},
		{"ticket of no scope", "POST /servers/CN1/tickets", `{"id":"a"}`, `422 InvalidParameters: Invalid parameters | scope MissingParameter: Missing parameter`},
		{"ticket scope of no text", "POST /servers/CN1/tickets", `{"scope":7,"id":"a"}`, `422 InvalidParameters: Invalid parameters | scope InvalidParameter: 7 is no text`},
		{"ticket that is over", "POST /servers/CN1/tickets", `{"scope":"vm","id":"a","expires_at":"2020-01-01T00:00:00.000Z"}`, `422 InvalidParameters: Invalid parameters | expires_at InvalidParameter: 2020-01-01T00:00:00.000Z is over`},
		{"ticket expires of no time", "POST /servers/CN1/tickets", `{"scope":"vm","id":"a","expires_at":"soon"}`, `422 InvalidParameters: Invalid parameters | expires_at InvalidParameter: time "soon": want RFC 3339, as in 2026-11-21T09:00:00.123Z`},
		{"ticket for nobody", "POST /servers/CN2/tickets", `{"scope":"vm","id":"a"}`, `404 ResourceNotFound: server not found`},
		{"tickets of nobody", "GET /servers/CN2/tickets", ``, `404 ResourceNotFound: server not found`},
		{"ticket unknown", "GET /tickets/CN1", ``, `404 ResourceNotFound: ticket CN1 not found`},
		{"ticket of no UUID", "GET /tickets/x", ``, `422 InvalidParameters: Invalid parameters | ticket_uuid InvalidParameter: "x" is not a UUID`},
		{"wait for no ticket", "GET /tickets/CN1/wait", ``, `404 ResourceNotFound: ticket CN1 not found`},
		{"release of no ticket", "PUT /tickets/CN1/release", ``, `404 ResourceNotFound: ticket CN1 not found`},
		{"delete of no ticket", "DELETE /tickets/CN1", ``, `404 ResourceNotFound: ticket CN1 not found`},
		{"wait for an ended ticket", "GET /tickets/TICKET/wait", ``, `409 TicketEnded: the ticket is finished`},
		{"method", "PATCH /servers/CN1", `{}`, `405 MethodNotAllowed: PATCH is not allowed`},
		{"method of tasks", "POST /tasks", `{}`, `405 MethodNotAllowed: POST is not allowed`},
		{"path", "GET /elsewhere", ``, `404 ResourceNotFound: GET /elsewhere does not exist`},
	} {
		t.Run(c.what, func(t *testing.T) {
			method, path, _ := strings.Cut(names.Replace(c.request), " ")
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(names.Replace(c.body))))
			if got, want := said(t, w.Code, w.Body.Bytes()), names.Replace(c.want); got != want {
				t.Errorf("%s %s\n got %s\nwant %s", c.request, c.body, got, want)
			}
		})
	}
}
