package gateway

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"rutter/api/internal/rest"
)

// TestOwners: a call about a node with Rutter's agent, and a task of the log, is the
// log's; others are the old CNAPI's.
func TestOwners(t *testing.T) {
	b := newBed(t, CNAPI, nil)
	for _, c := range []struct {
		method, path, body string
		behind             bool
	}{
		{"GET", "/servers", "", false},
		{"GET", "/servers/" + oldCN, "", false},
		{"GET", "/servers/" + freshVM, "", true}, // unknown here
		{"GET", "/servers/" + oldCN + "/vms", "", false},
		{"GET", "/servers/" + oldCN + "/vms/" + oldVM, "", true}, // asks the node
		{"GET", "/servers/" + newCN + "/vms/" + newVM, "", false},
		{"POST", "/servers/" + oldCN + "/vms/" + oldVM + "/start", "{}", true},
		{"POST", "/servers/" + newCN + "/vms/" + newVM + "/start", "{}", false},
		{"PUT", "/servers/" + oldCN + "/vms/" + oldVM + "/snapshots", `{"snapshot_name":"s"}`, true},
		{"PUT", "/servers/" + newCN + "/vms/" + newVM + "/snapshots", `{"snapshot_name":"s"}`, false}, // 501
		{"GET", "/tasks/" + freshVM, "", true},
		{"GET", "/tasks/" + freshVM + "/wait?timeout=1", "", true},
		{"POST", "/servers/" + newCN + "/nop", "{}", false},
		{"GET", "/platforms?os=true", "", true},
	} {
		before := len(b.asked())
		got := b.ask(c.method, c.path, c.body)
		if handed := len(b.asked()) > before; handed != c.behind {
			t.Errorf("%s %s: handed on %v, want %v: %d %s", c.method, c.path, handed, c.behind, got.status, got.body)
		}
		if strings.HasSuffix(c.path, newVM+"/snapshots") && got.status != http.StatusNotImplemented {
			t.Errorf("%s: %d, want 501", c.path, got.status)
		}
	}
	// A task of the log is waited for there (rule 2).
	got := b.ask("POST", "/servers/"+newCN+"/nop", "{}")
	_, id, _ := strings.Cut(got.body, `"id":"`)
	before := len(b.asked())
	if got := b.ask("GET", "/tasks/"+id[:36], ""); got.status != 200 || len(b.asked()) != before {
		t.Errorf("a task of the log: %d %s", got.status, got.body)
	}
}

// TestReportsToBoth: heartbeats, statuses and sysinfos of nodes without Rutter's agent
// reach both; a failure of the old one is not the node's (rule 3), and a sysinfo that was
// not taken is sent again.
func TestReportsToBoth(t *testing.T) {
	b := newBed(t, CNAPI, nil)
	down := true
	b.answerWith(func(w http.ResponseWriter, r *http.Request) {
		if down {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	count := func(part string) (n int) {
		for _, asked := range b.asked() {
			if strings.Contains(asked, part) {
				n++
			}
		}
		return n
	}
	for _, c := range [][2]string{
		{"/events/heartbeat", "{}"}, {"/events/status", `{"vms":{}}`}, {"/sysinfo", `{"sysinfo":{"UUID":"` + oldCN + `","Hostname":"cn1b"}}`},
	} {
		if got := b.ask("POST", "/servers/"+oldCN+c[0], c[1]); got.status > 299 {
			t.Errorf("%s: %d %s", c[0], got.status, got.body)
		}
		await(t, c[0]+" is with the old one", func() bool { return count(oldCN+c[0]) == 1 })
	}
	b.g.reports.under.Wait()
	if late := b.g.reports.waiting(); len(late) != 1 || late[0].name != "sysinfo" {
		t.Errorf("late: %+v", late)
	}
	b.mu.Lock()
	down = false
	b.mu.Unlock()
	for _, one := range b.g.reports.waiting() {
		b.g.reports.send(one)
	}
	b.g.reports.under.Wait()
	if late := b.g.reports.waiting(); len(late) != 0 || count("/sysinfo") != 2 {
		t.Errorf("late: %+v", late)
	}
	before := len(b.asked())
	b.ask("POST", "/servers/"+newCN+"/events/heartbeat", "{}")
	b.g.reports.under.Wait()
	if len(b.asked()) != before {
		t.Error("a report of a node with Rutter's agent went to the old CNAPI")
	}
}

// TestHangingReports: an old CNAPI that hangs does not delay a node's next report.
func TestHangingReports(t *testing.T) {
	b := newBed(t, CNAPI, nil)
	release := make(chan struct{})
	b.answerWith(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	for range 20 { // on one connection, one after another
		if got := b.ask("POST", "/servers/"+oldCN+"/events/heartbeat", "{}"); got.status != 204 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if n := len(b.asked()); n > 1 {
		t.Errorf("%d heartbeats of one node are under way", n)
	}
	close(release)
	b.g.reports.under.Wait()
}

// TestUpdatesToBoth: an operator's write reaches both, or its caller hears of it.
func TestUpdatesToBoth(t *testing.T) {
	b := newBed(t, CNAPI, nil)
	if got := b.ask("POST", "/servers/"+oldCN, `{"reserved":true}`); got.status != 204 && got.status != 200 || b.last().uri != "/servers/"+oldCN {
		t.Errorf("%d %s", got.status, got.body)
	}
	b.answerWith(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"code":"EtagConflict"}`)
	})
	if got := b.ask("POST", "/servers/"+oldCN, `{"reserved":false}`); got.status != 503 || !strings.Contains(got.body, "the log has it") {
		t.Errorf("the old one fails: %d %s", got.status, got.body)
	}
	b.answerWith(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	if got := b.ask("DELETE", "/servers/"+freshVM, ""); got.status != 404 {
		t.Errorf("one that neither knows: %d %s", got.status, got.body)
	}
	b.answerWith(nil)
	if got := b.ask("DELETE", "/servers/"+freshVM, ""); got.status != 204 {
		t.Errorf("one that only the old one knows: %d %s", got.status, got.body)
	}
}

// TestPlacement: tickets, /allocate and /capacity have one owner, never two (rule 4).
func TestPlacement(t *testing.T) {
	placing := func(cfg *Config) {
		done := func(w http.ResponseWriter, r *http.Request) error {
			rest.WriteJSON(w, r, 200, map[string]any{})
			return nil
		}
		names := cfg.Table.Endpoints()
		for _, path := range []string{"/allocate", "/capacity"} {
			if !slices.Contains(names, "POST "+path) {
				cfg.Table.Routes = append(cfg.Table.Routes, rest.Route{Method: "POST", Pattern: path, Serve: done})
			}
		}
	}
	for name, set := range map[string]func(*Config){
		"ours":   placing,
		"behind": func(cfg *Config) { placing(cfg); cfg.PlacementBehind = true },
		"without": func(cfg *Config) {
			cfg.Table.Routes = slices.DeleteFunc(cfg.Table.Routes, func(r rest.Route) bool { return r.Pattern == "/allocate" })
		},
	} {
		b := newBed(t, CNAPI, set)
		for _, call := range []string{
			"POST /allocate", "POST /capacity", "POST /servers/default/tickets", "GET /servers/" + newCN + "/tickets", "POST /servers/" + newCN + "/tickets",
			"GET /tickets/" + freshVM, "PUT /tickets/" + freshVM + "/release", "GET /tickets/" + freshVM + "/wait", "DELETE /tickets/" + freshVM,
		} {
			method, path, _ := strings.Cut(call, " ")
			before := len(b.asked())
			b.ask(method, path, map[bool]string{true: "", false: "{}"}[method == "GET"])
			if handed := len(b.asked()) > before; handed != (name != "ours") {
				t.Errorf("placement %s: %s handed on: %v", name, call, handed)
			}
		}
	}
}

// TestServersOfTheOldOne: a compute node that the log does not know comes into it, with
// its sysinfo and what operators gave it.
func TestServersOfTheOldOne(t *testing.T) {
	b := newBed(t, CNAPI, nil)
	b.answerWith(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `[{"uuid":"`+freshVM+`","hostname":"cn9","setup":true,"reserved":true,"comments":"rack 4","sysinfo":{"UUID":"`+freshVM+`","Hostname":"cn9","Setup":true}},
			{"uuid":"`+newCN+`","reserved":true,"sysinfo":{"UUID":"`+newCN+`","Hostname":"wrong"}}]`)
	})
	if !b.g.imported() {
		t.Error("a log with networks was imported into")
	}
	for range 2 {
		if err := b.g.sweepServers(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.ask("GET", "/servers/"+freshVM, ""); got.status != 200 || !strings.Contains(got.body, `"cn9"`) || !strings.Contains(got.body, `"rack 4"`) || !strings.Contains(got.body, `"reserved":true`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := b.ask("GET", "/servers/"+newCN, ""); strings.Contains(got.body, "wrong") {
		t.Errorf("a node with Rutter's agent: %s", got.body)
	}
}
