package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"rutter/log"
	"rutter/projections"
)

// placementCalls belong to one owner: /allocate counts tickets as used.
var placementCalls = []string{
	"POST /allocate", "POST /capacity",
	"POST /servers/{server}/tickets", "GET /servers/{server}/tickets", "DELETE /servers/{server}/tickets",
	"GET /tickets/{ticket}", "GET /tickets/{ticket}/wait", "PUT /tickets/{ticket}/release", "DELETE /tickets/{ticket}",
}

// placementBehind reports whether the old CNAPI places VMs: by the setting, or because
// the table cannot.
func (g *Gateway) placementBehind() bool {
	return g.cfg.PlacementBehind || !g.owns["POST /allocate"] || !g.owns["POST /capacity"]
}

// serverCalls are the documented calls of CNAPI that are not simply handed on as reads.
func (g *Gateway) serverCalls() []call {
	calls := []call{
		{name: "GET /ping", serve: g.own},
		{name: "GET /servers", serve: g.own},
		{name: "GET /servers/{server}", serve: g.knownServer},
		{name: "GET /servers/{server}/sysinfo", serve: g.knownServer},
		{name: "POST /servers/{server}", right: writing, serve: g.teed("update")},
		{name: "PUT /servers/{server}", right: writing, serve: g.teed("update")},
		{name: "DELETE /servers/{server}", right: writing, serve: g.teed("delete")},
		{name: "POST /servers/{server}/sysinfo", right: writing, serve: g.reported("sysinfo")},
		{name: "POST /servers/{server}/events/heartbeat", right: writing, serve: g.reported("heartbeat")},
		{name: "POST /servers/{server}/events/status", right: writing, serve: g.reported("status")},
		{name: "GET /servers/{server}/vms", serve: g.own},
		{name: "GET /tasks", serve: g.own},
		{name: "GET /tasks/{task}", serve: g.ofTask},
		{name: "GET /tasks/{task}/wait", serve: g.ofTask},
		{name: "POST /servers/{server}/tasks", right: writing, serve: g.own}, // Rutter's, not CNAPI's
		{name: "POST /servers/{server}/execute", right: operating, serve: g.ofNode},
		{name: "POST /servers/{server}/reboot", right: operating, serve: g.ofNode},
	}
	placed := g.own
	if g.placementBehind() {
		placed = func(a *asked) error { return g.handOn(a, nil) }
	}
	for _, name := range placementCalls {
		c := call{name: name, right: writing, serve: placed}
		if strings.HasPrefix(name, "GET ") {
			c.right = reading
		}
		calls = append(calls, c)
	}
	add := func(right right, check checking, names ...string) {
		for _, name := range names {
			calls = append(calls, call{name: name, right: right, check: check, serve: g.ofNode})
		}
	}
	add(programs, unlooked, "PUT /servers/{server}/setup", "PUT /servers/{server}/factory-reset", "POST /servers/{server}/install-agent",
		"POST /servers/{server}/uninstall-agents", "POST /servers/{server}/recovery-config",
		"POST /servers/{server}/vms/{vm}/docker-exec", "POST /servers/{server}/vms/{vm}/docker-copy", "POST /servers/{server}/vms/{vm}/docker-build")
	add(writing, ofVM, "POST /servers/{server}/vms", "POST /servers/{server}/vms/{vm}/update", "POST /servers/{server}/vms/{vm}/start",
		"POST /servers/{server}/vms/{vm}/stop", "POST /servers/{server}/vms/{vm}/kill", "POST /servers/{server}/vms/{vm}/reboot",
		"POST /servers/{server}/vms/{vm}/reprovision", "POST /servers/{server}/vms/{vm}/migrate", "POST /servers/{server}/vms/{vm}/images")
	add(writing, unlooked, "DELETE /servers/{server}/vms/{vm}", "POST /servers/{server}/vms/{vm}/docker-stats", "GET /servers/{server}/vms/{vm}/vnc",
		"PUT /servers/{server}/vms/{vm}/snapshots", "PUT /servers/{server}/vms/{vm}/snapshots/{name}/rollback", "DELETE /servers/{server}/vms/{vm}/snapshots/{name}",
		"POST /servers/{server}/vms/nics/update", "PUT /servers/{server}/nics", "POST /servers/{server}/nics/update",
		"POST /servers/{server}/sysinfo-refresh", "POST /servers/{server}/ensure-image", "POST /servers/{server}/nop",
		"POST /servers/{server}/cn-agent/pause", "POST /servers/{server}/cn-agent/resume", "PUT /boot/{server}", "POST /boot/{server}")
	add(reading, unlooked, "GET /servers/{server}/vms/{vm}", "GET /servers/{server}/vms/{vm}/proc", "GET /servers/{server}/vms/{vm}/info",
		"GET /servers/{server}/task-history", "GET /boot/{server}", "GET /servers/{server}/images/{image}")
	return calls
}

// node says what the log has of the compute node of a request.
func (g *Gateway) node(r *http.Request) (known, agent bool) {
	id := strings.ToLower(r.PathValue("server"))
	g.store.View(func(state *projections.State, _ log.Cursor) {
		if _, known = state.Get(log.KindServer, id); known {
			cn, _ := log.ParseUUID(id) // it is one: the log has it
			agent = hasAgent(state, cn)
		}
	})
	return known, agent
}

// ofNode answers a call about a compute node or a VM on it: from the log if the node has
// Rutter's agent, else by the old CNAPI.
func (g *Gateway) ofNode(a *asked) error {
	if _, agent := g.node(a.r); agent {
		return g.own(a)
	}
	return g.handOn(a, nil)
}

// knownServer answers from the log if it knows the compute node.
func (g *Gateway) knownServer(a *asked) error {
	if known, _ := g.node(a.r); known {
		return g.own(a)
	}
	return g.handOn(a, nil)
}

// ofTask answers about a task by its owner: whose id it is, the log knows.
func (g *Gateway) ofTask(a *asked) error {
	known := false
	g.store.View(func(state *projections.State, _ log.Cursor) {
		_, known = state.Get(log.KindTask, strings.ToLower(a.r.PathValue("task")))
	})
	if !known {
		return g.handOn(a, nil)
	}
	return g.own(a)
}

// followServers has the log know the compute nodes of the old CNAPI, while this server
// leads: a cn-agent sends its sysinfo when it starts, and may not start for years.
func (g *Gateway) followServers(ctx context.Context) {
	pause := firstPause
	for {
		if g.leading() && g.store.Ready() == nil && g.imported() {
			err := g.sweepServers(ctx)
			switch {
			case err == nil:
				pause = g.cfg.Sweep
			case ctx.Err() == nil:
				g.logger.Debug("the compute nodes of "+g.name()+" were not read", "error", err)
				pause = min(2*pause, mostPause)
			}
		} else {
			pause = leadEvery
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// imported reports whether the log has networks. Before NAPI was imported into it, a
// node's sysinfo would make NIC tags that the import could not make any more.
func (g *Gateway) imported() (is bool) {
	g.store.View(func(state *projections.State, _ log.Cursor) {
		for range state.List(log.KindNetwork) {
			is = true
			return
		}
	})
	return is
}

// serverPage is how many compute nodes one answer has.
const serverPage = 100

// sweepServers reads the compute nodes of the old CNAPI, and writes into the log those
// that it lacks, and the operator's fields of those without an agent of Rutter's.
func (g *Gateway) sweepServers(ctx context.Context) error {
	for offset := 0; offset < MaxSwept; offset += serverPage {
		body, _, err := g.behind.ask(ctx, http.MethodGet, "/servers?extras=all&limit="+strconv.Itoa(serverPage)+"&offset="+strconv.Itoa(offset), nil, nil)
		if err != nil {
			return err
		}
		var page []map[string]json.RawMessage
		if err := json.Unmarshal(body, &page); err != nil {
			return err
		}
		for _, one := range page {
			if err := g.takeServer(ctx, one); err != nil {
				return err
			}
		}
		if len(page) < serverPage {
			return nil
		}
	}
	return nil
}

// ofOperator are the fields of a server that operators give, as CNAPI's update takes them.
var ofOperator = []string{
	"boot_params", "boot_platform", "comments", "datacenter", "default_console", "kernel_flags", "overprovision_ratios",
	"rack_identifier", "reservation_ratio", "reserved", "reservoir", "setup", "setting_up", "traits",
}

// takeServer writes one compute node of the old CNAPI into the log, if it has no agent of
// Rutter's, as if it had said so itself.
func (g *Gateway) takeServer(ctx context.Context, one map[string]json.RawMessage) error {
	var id log.UUID
	if json.Unmarshal(one["uuid"], &id) != nil || id.IsZero() {
		return nil
	}
	var known *log.Server
	agent := false
	g.store.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok := state.Get(log.KindServer, id.String()); ok {
			known, agent = rec.Object.(*log.Server), hasAgent(state, id)
		}
	})
	if agent {
		return nil
	}
	if sysinfo, ok := one["sysinfo"]; ok && (known == nil || known.Sysinfo == "") {
		body, err := json.Marshal(map[string]json.RawMessage{"sysinfo": sysinfo})
		if err != nil {
			return err
		}
		g.toOurs(ctx, "/servers/"+id.String()+"/sysinfo", body)
	}
	if known != nil {
		return nil // from now on the log has what operators write, by the listener
	}
	fields := make(map[string]json.RawMessage)
	for name, raw := range one {
		if slices.Contains(ofOperator, name) && string(raw) != "null" && string(raw) != "{}" && string(raw) != `""` {
			fields[name] = raw
		}
	}
	// One field at a time: one that the log refuses does not keep the others out.
	for name, raw := range fields {
		body, err := json.Marshal(map[string]json.RawMessage{name: raw})
		if err != nil {
			return err
		}
		g.toOurs(ctx, "/servers/"+id.String(), body)
	}
	return nil
}

// toOurs makes a request to the wrapped table itself.
func (g *Gateway) toOurs(ctx context.Context, path string, body []byte) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bodyOf(body))
	if err != nil {
		return
	}
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength, r.RemoteAddr = int64(len(body)), "gateway"
	w := newRecorder()
	g.inner.ServeHTTP(w, r)
	outcome := "written"
	if w.code > 299 {
		outcome = "failed"
		g.logger.Warn("a compute node of "+g.name()+" is not in the log as it is there", "asked", path, "answer", w.code, "why", cut(w.body.Bytes()))
	}
	g.cfg.Metrics.taken.WithLabelValues(g.cfg.Surface, outcome).Inc()
}
