package lying

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"rutter/api"
	"rutter/api/auth/allow"
	"rutter/api/auth/matrix"
	"rutter/api/triton/changefeed"
	"rutter/api/triton/cnapi"
	"rutter/api/triton/napi"
	"rutter/api/triton/netreport"
	"rutter/api/triton/vmapi"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

// store is the log of the world, as Triton's surfaces see it.
type store struct{ *world }

func (s store) Propose(_ context.Context, c *log.Change) (log.Result, error) {
	s.made++
	c.Time, c.Seed = baseTime+log.Time(s.made), s.made
	events, result := rules.Decide(s.state, c)
	s.apply(events)
	result.Last = s.seq
	return result, nil
}

func (s store) View(fn func(*projections.State, log.Cursor)) { fn(s.state, s.Head()) }
func (s store) Head() log.Cursor                             { return log.Cursor{Cluster: id(1), Seq: s.seq} }
func (s store) Floor() log.Seq                               { return s.seq }
func (s store) Changed() <-chan struct{}                     { return make(chan struct{}) }
func (s store) WaitSeq(context.Context, log.Seq) error       { return nil }
func (s store) Consistent(context.Context) (log.Seq, error)  { return s.seq, nil }
func (s store) Ready() error                                 { return nil }
func (s store) AwaitReady(context.Context) error             { return nil }
func (s store) Serving() error                               { return nil }
func (s store) Entries(log.Seq, int) ([]log.Entry, error)    { return nil, nil }
func (s store) CheckCursor(log.Cursor) error                 { return nil }

// surfaces are the handlers of Triton's services, behind the gate of their listeners.
func surfaces(t *testing.T, s store, list allow.List) map[string]http.Handler {
	t.Helper()
	drawn := uint64(1 << 32)
	newID := func() (log.UUID, error) {
		drawn++
		u := id(drawn)
		u[6], u[8] = 0x70, 0x80
		return u, nil
	}
	asker := func(r *http.Request) (string, log.Author) {
		who, ok := matrix.From(r.Context())
		if !ok {
			return "test", log.Author{}
		}
		return who.Actor(), who.Author()
	}
	feeds, err := changefeed.New(changefeed.Config{Store: s})
	must(t, err)
	networks, err := napi.New(napi.Config{Store: s, NewID: newID, Changefeeds: feeds.Table().Routes})
	must(t, err)
	nodes, err := cnapi.New(cnapi.Config{Store: s, NewID: newID, Asker: asker})
	must(t, err)
	machines, err := vmapi.New(vmapi.Config{Store: s, NewID: newID})
	must(t, err)
	reports, err := netreport.New(netreport.Config{Store: s, Allowed: func(*http.Request, log.UUID) error {
		return &log.Refusal{Code: log.CodeNotAuthorized, Message: "no"}
	}})
	must(t, err)
	handlers := make(map[string]http.Handler)
	for name, table := range map[string]*api.Surface{"napi": networks.Table(), "cnapi": nodes.Table(), "vmapi": machines.Table(), "changefeeds": feeds.Table(), "reports": reports.Table()} {
		gate := &allow.Handler{List: list, Surface: name}
		gate.Serve(table, nil)
		handlers[name] = gate
	}
	return handlers
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// foreignRequest draws a request of a surface's route table.
func foreignRequest(draw chooser) (surface, method, path, body string) {
	var what []string
	for what == nil || what[0] == "pki" || strings.HasSuffix(what[2], "/wait") { // which waits until something ends
		rows := matrix.Surfaces()
		what = strings.Fields(rows[draw(len(rows))].What)
	}
	parts := strings.Split(what[2], "/")
	for i, part := range parts {
		switch {
		case part == "{mac}":
			parts[i] = drawMAC(draw).String()
		case part == "{ip}":
			parts[i] = pick(draw, addresses[2:]...).String()
		case part == "{vlan_id}":
			parts[i] = fmt.Sprint(draw(5))
		case part == "{name}":
			parts[i] = pick(draw, "overlay", "external", "admin", "none")
		case strings.HasPrefix(part, "{"):
			parts[i] = pick(draw, anyID...).String()
		}
	}
	body = pick(draw,
		`{}`, `{"comments":"x","state":"stopped","name":"y"}`, `[]`, `{`,
		fmt.Sprintf(`{"belongs_to_type":"zone","belongs_to_uuid":%q,"owner_uuid":%q,"network_uuid":%q,"cn_uuid":%q,"mac":%q}`, pick(draw, anyVM...), tenantA, pick(draw, networks...), pick(draw, cns...), drawMAC(draw)),
		fmt.Sprintf(`{"sysinfo":{"UUID":%q,"Hostname":"x","Setup":"true"}}`, pick(draw, cns...)),
		fmt.Sprintf(`{"task":"machine_destroy","params":{"uuid":%q}}`, pick(draw, vms...)),
		fmt.Sprintf(`{"networks":[%q,%q],"name":"r","owner_uuid":%q}`, pick(draw, networks...), pick(draw, networks...), tenantB),
		`{"reserved":true,"check_owner":false,"gateway":"10.0.0.9"}`)
	return what[0], what[1], strings.Join(parts, "/"), body
}

// TestForeignProgram: a program that was given no right at Triton's surfaces hears nothing
// of the world there, and one that may read changes nothing, whatever they ask.
func TestForeignProgram(t *testing.T) {
	requests, seed := 4000, uint64(17)
	if os.Getenv("RUTTER_LONG") != "" {
		requests, seed = 100_000, rand.Uint64()
	}
	list, err := allow.Parse([]string{"192.0.2.7/32=read"})
	must(t, err)
	w := newWorld(t, log.FeatureVersion)
	handlers := surfaces(t, store{w}, list)
	before := string(w.state.Dump())
	draw := chooser(rand.New(rand.NewPCG(seed, 3)).IntN)
	statuses := make(map[int]int)
	for range requests {
		surface, method, path, body := foreignRequest(draw)
		from := pick(draw, "192.0.2.7:99", "192.0.2.9:99")
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.RemoteAddr = from
		r.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		handlers[surface].ServeHTTP(answer, r)
		statuses[answer.Code]++
		what := fmt.Sprintf("seed %d: %s: %s %s %s %s: %d %s", seed, from, surface, method, path, body, answer.Code, answer.Body)
		open := matrix.Find(surface+" "+method+" "+path) != nil && strings.HasSuffix(path, "/ping")
		if from == "192.0.2.9:99" && answer.Code != http.StatusForbidden && !open {
			t.Fatalf("without a right: %s", what)
		}
		if method != http.MethodGet && answer.Code < 400 {
			t.Fatalf("a program that may only read was answered: %s", what)
		}
		if from == "192.0.2.9:99" {
			for token := range tokens(answer.Body.String()) {
				if !contains(path+body, token) {
					t.Fatalf("the answer has %s: %s", token, what)
				}
			}
		}
	}
	if after := string(w.state.Dump()); after != before {
		t.Errorf("seed %d: the world changed from\n%s\nto\n%s", seed, before, after)
	}
	if statuses[http.StatusOK] < requests/20 {
		t.Errorf("statuses %v: the test asks nothing that there is", statuses)
	}
}
