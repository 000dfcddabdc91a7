package cutover

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// oldCNAPI is the old CNAPI: servers, tasks, the waitlist, and /allocate.
type oldCNAPI struct {
	// placed counts calls of /allocate, and tickets that were made.
	placed atomic.Int64

	mu      sync.Mutex // protects what follows
	nodes   map[string]*node
	beats   map[string]time.Time
	sysinfo map[string]object
	tasks   map[string]object
	tickets map[string]*ticket
	order   []string // of tickets
}

type ticket struct {
	id, server, scope, object, status string
}

func newOldCNAPI() *oldCNAPI {
	return &oldCNAPI{nodes: map[string]*node{}, beats: map[string]time.Time{}, sysinfo: map[string]object{}, tasks: map[string]object{}, tickets: map[string]*ticket{}}
}

// running reports whether a server gave a sign of life (4.2).
func (c *oldCNAPI) running(server string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.beats[server]) < 11*time.Second && c.sysinfo[server] != nil
}

func (c *oldCNAPI) node(server string) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[server]
}

func (c *oldCNAPI) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ping", func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, object{"ready": true}) })
	mux.HandleFunc("GET /servers", func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		list := []object{}
		for id, info := range c.sysinfo {
			list = append(list, object{"uuid": id, "sysinfo": info, "setup": true, "status": "running"})
		}
		reply(w, 200, list)
	})
	mux.HandleFunc("GET /servers/{s}", func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		info := c.sysinfo[r.PathValue("s")]
		c.mu.Unlock()
		if info == nil {
			refuse(w, 404, "ResourceNotFound", "no such server")
			return
		}
		reply(w, 200, object{"uuid": r.PathValue("s"), "sysinfo": info, "setup": true, "status": map[bool]string{true: "running", false: "unknown"}[c.running(r.PathValue("s"))]})
	})
	mux.HandleFunc("POST /servers/{s}/sysinfo", func(w http.ResponseWriter, r *http.Request) {
		info, _ := params(r)["sysinfo"].(object)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sysinfo[r.PathValue("s")] = info
		reply(w, 200, object{})
	})
	mux.HandleFunc("POST /servers/{s}/events/heartbeat", func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.beats[r.PathValue("s")] = time.Now()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /servers/{s}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("POST /servers/{s}/events/status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for pattern, task := range map[string]string{
		"POST /servers/{s}/vms": "machine_create", "DELETE /servers/{s}/vms/{v}": "machine_destroy", "POST /servers/{s}/vms/{v}/start": "machine_boot",
		"POST /servers/{s}/vms/{v}/stop": "machine_shutdown", "POST /servers/{s}/vms/{v}/update": "machine_update", "POST /servers/{s}/ensure-image": "",
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.start(w, r, task) })
	}
	mux.HandleFunc("GET /tasks/{t}", c.task)
	mux.HandleFunc("GET /tasks/{t}/wait", c.task)
	mux.HandleFunc("POST /allocate", c.allocate)
	mux.HandleFunc("POST /capacity", c.capacity)
	mux.HandleFunc("POST /servers/{s}/tickets", c.makeTicket)
	mux.HandleFunc("GET /tickets/{t}", c.ticket)
	mux.HandleFunc("GET /tickets/{t}/wait", c.waitTicket)
	mux.HandleFunc("PUT /tickets/{t}/release", c.release)
	return mux
}

// start starts a task on a server that runs; it is done when its id is known.
func (c *oldCNAPI) start(w http.ResponseWriter, r *http.Request, task string) {
	n := c.node(r.PathValue("s"))
	if n == nil || !c.running(n.id) {
		refuse(w, 409, "ServerNotRunning", "the server is not running")
		return
	}
	p := params(r)
	if r.PathValue("v") != "" {
		p["uuid"] = r.PathValue("v")
	}
	id := uuid.NewString()
	t := object{"id": id, "task": task, "server_uuid": n.id, "status": "complete", "history": []any{object{"name": "finish", "event": object{}}}}
	if task != "" {
		vm, problem := n.do(task, p)
		if problem != "" {
			t["status"], t["history"] = "failure", []any{object{"name": "error", "event": object{"error": problem}}}
		} else {
			t["history"] = []any{object{"name": "finish", "event": object{"vm": vm}}}
		}
	}
	c.mu.Lock()
	c.tasks[id] = t
	c.mu.Unlock()
	reply(w, 200, object{"id": id})
}

func (c *oldCNAPI) task(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	t := c.tasks[r.PathValue("t")]
	c.mu.Unlock()
	if t == nil {
		refuse(w, 404, "ResourceNotFound", "no such task found")
		return
	}
	reply(w, 200, t)
}

// allocate chooses the old node while it runs.
func (c *oldCNAPI) allocate(w http.ResponseWriter, _ *http.Request) {
	c.placed.Add(1)
	if c.running(oldNode) { // the only one that has room
		c.mu.Lock()
		defer c.mu.Unlock()
		reply(w, 200, object{"server": object{"uuid": oldNode, "sysinfo": c.sysinfo[oldNode]}, "steps": []any{}, "imgapiPeers": []any{}})
		return
	}
	refuse(w, 409, "NoAllocatableServersError", "no server has room")
}

func (c *oldCNAPI) capacity(w http.ResponseWriter, _ *http.Request) {
	all := object{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.nodes {
		all[id] = object{"cpu": 1600, "ram": 65536, "disk": 500000}
	}
	reply(w, 200, object{"capacities": all})
}

func (c *oldCNAPI) makeTicket(w http.ResponseWriter, r *http.Request) {
	c.placed.Add(1)
	p := params(r)
	t := &ticket{id: uuid.NewString(), server: r.PathValue("s"), scope: text(p, "scope"), object: text(p, "id")}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickets[t.id] = t
	c.order = append(c.order, t.id)
	c.turn()
	reply(w, 202, object{"uuid": t.id, "queue": []any{object{"uuid": t.id, "status": t.status}}})
}

// turn makes the first ticket of each queue active.
func (c *oldCNAPI) turn() {
	first := map[[3]string]bool{}
	for _, id := range c.order {
		t := c.tickets[id]
		key := [3]string{t.server, t.scope, t.object}
		switch {
		case t.status == "finished":
		case first[key]:
			t.status = "queued"
		default:
			t.status, first[key] = "active", true
		}
	}
}

func (c *oldCNAPI) status(id string) (status string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.tickets[id]; t != nil {
		return t.status
	}
	return ""
}

func (c *oldCNAPI) ticket(w http.ResponseWriter, r *http.Request) {
	if status := c.status(r.PathValue("t")); status != "" {
		reply(w, 200, object{"uuid": r.PathValue("t"), "status": status})
		return
	}
	refuse(w, 404, "ResourceNotFound", "ticket not found")
}

func (c *oldCNAPI) waitTicket(w http.ResponseWriter, r *http.Request) {
	for {
		switch c.status(r.PathValue("t")) {
		case "":
			refuse(w, 404, "ResourceNotFound", "ticket not found")
			return
		case "queued":
		default:
			w.WriteHeader(http.StatusNoContent)
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (c *oldCNAPI) release(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tickets[r.PathValue("t")]
	if t == nil {
		refuse(w, 404, "ResourceNotFound", "ticket not found")
		return
	}
	t.status = "finished"
	c.turn()
	w.WriteHeader(http.StatusNoContent)
}

// take takes a ticket and waits for its turn, as callers do (5.5, T).
func take(ctx context.Context, n *names, server, scope, id, action string, extra object) (release func(), err error) {
	var made struct{ UUID string }
	base := n.of("cnapi")
	body := object{"scope": scope, "id": id, "action": action, "expires_at": time.Now().Add(10 * time.Minute).UTC().Format(time.RFC3339)}
	if extra != nil {
		body["extra"] = extra
	}
	if err := call(ctx, http.MethodPost, base+"/servers/"+server+"/tickets", body, &made); err != nil {
		return nil, err
	}
	var got struct{ Status string }
	if err := call(ctx, http.MethodGet, base+"/tickets/"+made.UUID, nil, &got); err != nil {
		return nil, err
	}
	if got.Status != "active" {
		if err := call(ctx, http.MethodGet, base+"/tickets/"+made.UUID+"/wait", nil, nil); err != nil {
			return nil, err
		}
	}
	// A ticket of one owner is released there, wherever the name leads by then.
	return func() {
		_ = call(context.WithoutCancel(ctx), http.MethodPut, base+"/tickets/"+made.UUID+"/release", nil, nil)
	}, nil
}
