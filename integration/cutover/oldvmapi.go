package cutover

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
)

// oldVMAPI is the old VMAPI with its Workflow API.
type oldVMAPI struct {
	// own are the URLs that VMAPI itself is configured with, jobs those of its workflows
	// (rule 12).
	own, jobs *names
	ctx       context.Context
	running   sync.WaitGroup // jobs
	log       func(format string, args ...any)
	// natMade counts NAT zones that jobs made, natFound networks that had one.
	natMade, natFound atomic.Int64
	// held is called by the next creation that has its place and no NICs yet.
	held atomic.Pointer[func()]

	mu        sync.Mutex // protects what follows
	vms       map[string]object
	order     []string
	job       map[string]object
	listeners map[chan object]bool
	// packages are PAPI's, by their UUIDs: the traits that a server must have.
	packages map[string]object
}

func newOldVMAPI(ctx context.Context, own, jobs *names, log func(format string, args ...any)) *oldVMAPI {
	return &oldVMAPI{log: log, own: own, jobs: jobs, ctx: ctx, vms: map[string]object{}, job: map[string]object{}, listeners: map[chan object]bool{}, packages: map[string]object{}}
}

// store keeps a VM whole, and publishes it.
func (v *oldVMAPI) store(vm object) {
	v.mu.Lock()
	defer v.mu.Unlock()
	id := text(vm, "uuid")
	if v.vms[id] == nil {
		v.order = append(v.order, id)
	}
	v.vms[id] = vm
	item := object{
		"changeKind":        object{"resource": "vm", "subResources": []string{"state", "nics", "server_uuid", "alias"}},
		"changedResourceId": id, "resourceObject": vm, "resourceState": vm["state"], "published": strconv.FormatInt(time.Now().UnixMilli(), 10),
	}
	for c := range v.listeners {
		select {
		case c <- item:
		default: // the real one's listener would lose it too
		}
	}
}

func (v *oldVMAPI) get(id string) object {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.vms[id])
}

func (v *oldVMAPI) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ping", func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, object{"status": "OK"}) })
	mux.HandleFunc("GET /vms", v.list)
	mux.HandleFunc("GET /vms/{v}", func(w http.ResponseWriter, r *http.Request) {
		vm := v.get(r.PathValue("v"))
		if owner := r.URL.Query().Get("owner_uuid"); vm == nil || owner != "" && owner != vm["owner_uuid"] {
			refuse(w, 404, "ResourceNotFound", "VM not found")
			return
		}
		reply(w, 200, vm)
	})
	mux.HandleFunc("POST /vms", v.create)
	mux.HandleFunc("POST /vms/{v}", v.act)
	mux.HandleFunc("DELETE /vms/{v}", func(w http.ResponseWriter, r *http.Request) { v.begin(w, r.PathValue("v"), "destroy", params(r)) })
	mux.HandleFunc("PUT /vms/{v}", func(w http.ResponseWriter, r *http.Request) {
		vm := params(r)
		vm["uuid"] = r.PathValue("v")
		v.store(vm)
		reply(w, 200, object{})
	})
	mux.HandleFunc("PUT /vms", func(w http.ResponseWriter, r *http.Request) {
		vms, _ := params(r)["vms"].(object)
		for _, vm := range vms {
			v.store(vm.(object))
		}
		reply(w, 200, object{})
	})
	mux.HandleFunc("GET /jobs/{j}", v.getJob)
	mux.HandleFunc("GET /jobs/{j}/wait", v.getJob)
	mux.HandleFunc("POST /job_results", func(w http.ResponseWriter, r *http.Request) {
		p := params(r)
		if vm := v.get(text(p, "vm_uuid")); vm != nil && text(p, "execution") == "failed" {
			vm["state"], vm["zone_state"] = "failed", "failed"
			v.store(vm)
		}
		reply(w, 200, object{})
	})
	mux.HandleFunc("GET /migrations/{v}", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, 412, "PreconditionFailed", "no migration")
	})
	mux.HandleFunc("GET /changefeeds", v.feed)
	return mux
}

func (v *oldVMAPI) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	v.mu.Lock()
	defer v.mu.Unlock()
	found := []object{}
	for _, id := range v.order {
		vm := v.vms[id]
		if q.Get("state") == "active" && (vm["state"] == "destroyed" || vm["state"] == "failed") {
			continue
		}
		matches := true
		for _, name := range []string{"server_uuid", "owner_uuid", "uuid", "alias", "state"} {
			if name == "state" && q.Get(name) == "active" {
				continue
			}
			matches = matches && (!q.Has(name) || q.Get(name) == text(vm, name))
		}
		if matches {
			found = append(found, vm)
		}
	}
	w.Header().Set("x-joyent-resource-count", strconv.Itoa(len(found)))
	offset, _ := strconv.Atoi(q.Get("offset")) // none is 0
	reply(w, 200, found[min(offset, len(found)):])
}

// create is 5.5, create, steps 1 to 4.
func (v *oldVMAPI) create(w http.ResponseWriter, r *http.Request) {
	ctx, p := r.Context(), params(r)
	vm := object{"uuid": uuid.NewString(), "state": "provisioning", "zone_state": "provisioning", "create_timestamp": now(), "nics": []any{}, "tags": object{}}
	for _, name := range []string{"owner_uuid", "alias", "brand", "image_uuid", "billing_id", "ram", "quota", "cpu_cap"} {
		vm[name] = p[name]
	}
	vm["max_physical_memory"] = vm["ram"]
	if id := text(p, "uuid"); id != "" {
		vm["uuid"] = id
	}
	id := text(vm, "uuid")
	wanted, _ := p["networks"].([]any)
	tags := [][]string{}
	for _, one := range wanted {
		network := text(one.(object), "ipv4_uuid")
		err := call(ctx, http.MethodGet, v.own.of("napi")+"/network_pools/"+network, nil, nil) // tried first
		if codeOf(err) != "ResourceNotFound" {
			passOn(w, err)
			return
		}
		var known object
		if err := call(ctx, http.MethodGet, v.own.of("napi")+"/networks/"+network, nil, &known); err != nil {
			passOn(w, err)
			return
		}
		tag, _, _ := strings.Cut(text(known, "nic_tag"), "/")
		tags = append(tags, []string{tag})
	}
	server := text(p, "server_uuid")
	var err error
	if server != "" {
		err = call(ctx, http.MethodGet, v.own.of("cnapi")+"/servers/"+server, nil, nil)
	} else {
		server, err = v.place(ctx, vm, p, tags)
	}
	if err != nil {
		passOn(w, err)
		return
	}
	release, err := take(ctx, v.own, server, "vm", id, "provision", object{
		"owner_uuid": vm["owner_uuid"], "max_physical_memory": vm["ram"], "cpu_cap": vm["cpu_cap"], "quota": vm["quota"], "brand": vm["brand"],
	})
	if err != nil {
		passOn(w, err)
		return
	}
	vm["server_uuid"] = server
	v.store(vm) // before the job is
	if hold := v.held.Swap(nil); hold != nil {
		(*hold)()
	}
	nics, err := v.provisionNICs(ctx, vm, wanted)
	if err != nil {
		release()
		passOn(w, err)
		return
	}
	w.Header().Set("workflow-api", "http://workflow.invalid")
	reply(w, 202, object{"vm_uuid": id, "job_uuid": v.run("provision", func(ctx context.Context, n *names) error {
		defer release()
		return v.provision(ctx, n, vm, nics)
	})})
}

// place is /allocate under its lock.
func (v *oldVMAPI) place(ctx context.Context, vm, p object, tags [][]string) (server string, err error) {
	release, err := take(ctx, v.own, "default", "vm-allocate", "global", "allocate", nil)
	if err != nil {
		return "", err
	}
	defer release()
	asked := maps.Clone(vm)
	asked["vm_uuid"] = vm["uuid"]
	delete(asked, "nics")
	var placed struct{ Server struct{ UUID string } }
	err = call(ctx, http.MethodPost, v.own.of("cnapi")+"/allocate", object{
		"vm": asked, "image": object{"uuid": p["image_uuid"]}, "package": v.packageOf(vm), "nic_tags": flat(tags), "nic_tag_requirements": tags,
	}, &placed)
	return placed.Server.UUID, err
}

// holdNext holds the next creation up between its ticket and its NICs. reached is closed
// when it is there; it goes on with resume, which may be called more than once.
func (v *oldVMAPI) holdNext() (reached <-chan struct{}, resume func()) {
	there, on := make(chan struct{}), make(chan struct{})
	hold := func() {
		close(there)
		select {
		case <-on:
		case <-v.ctx.Done():
		}
	}
	v.held.Store(&hold)
	return there, sync.OnceFunc(func() { close(on) })
}

// packageOf is the package of a VM as PAPI has it.
func (v *oldVMAPI) packageOf(vm object) object {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := object{"max_physical_memory": vm["ram"], "cpu_cap": vm["cpu_cap"]}
	if traits := v.packages[text(vm, "billing_id")]; traits != nil {
		p["traits"] = traits
	}
	return p
}

func flat(sets [][]string) (all []string) {
	for _, set := range sets {
		all = append(all, set...)
	}
	return all
}

func (v *oldVMAPI) provisionNICs(ctx context.Context, vm object, wanted []any) (nics []any, err error) {
	for _, one := range wanted {
		want := one.(object)
		var nic object
		body := object{"owner_uuid": vm["owner_uuid"], "belongs_to_uuid": vm["uuid"], "belongs_to_type": "zone", "state": "provisioning", "cn_uuid": vm["server_uuid"], "nic_tags_available": []string{"external", "admin", "sdc_overlay"}}
		for _, name := range []string{"ip", "primary", "allow_ip_spoofing"} {
			if value, ok := want[name]; ok {
				body[name] = value
			}
		}
		if err := call(ctx, http.MethodPost, v.own.of("napi")+"/networks/"+text(want, "ipv4_uuid")+"/nics", body, &nic); err != nil {
			return nil, err
		}
		nics = append(nics, nic)
	}
	return nics, nil
}

// act is POST /vms/UUID?action=.
func (v *oldVMAPI) act(w http.ResponseWriter, r *http.Request) {
	p := params(r)
	if !slices.Contains([]string{"start", "stop", "kill", "update", "add_nics", "remove_nics"}, text(p, "action")) {
		refuse(w, 409, "ValidationFailed", "action is not known")
		return
	}
	v.begin(w, r.PathValue("v"), text(p, "action"), p)
}

// begin starts the job of an action on a VM that was made.
func (v *oldVMAPI) begin(w http.ResponseWriter, id, action string, p object) {
	vm := v.get(id)
	switch {
	case vm == nil:
		refuse(w, 404, "ResourceNotFound", "VM not found")
		return
	case vm["state"] == "provisioning":
		refuse(w, 409, "UnallocatedVM", "VM has not been allocated to a server yet")
		return
	}
	reply(w, 202, object{"vm_uuid": id, "job_uuid": v.run(action, func(ctx context.Context, n *names) error { return v.action(ctx, n, vm, action, p) })})
}

// run runs a job, and returns its id.
func (v *oldVMAPI) run(name string, fn func(ctx context.Context, n *names) error) (id string) {
	id = uuid.NewString()
	v.setJob(id, object{"uuid": id, "name": name, "execution": "running"})
	v.running.Go(func() {
		done := object{"uuid": id, "name": name, "execution": "succeeded"}
		// A job has the URLs that its parameters had when it was queued.
		if err := fn(v.ctx, frozen(v.jobs)); err != nil {
			done["execution"], done["error"] = "failed", err.Error()
			v.log("job %s %s failed: %v", name, id, err)
		}
		v.setJob(id, done)
	})
	return id
}

func frozen(n *names) *names {
	return &names{napi: n.of("napi"), cnapi: n.of("cnapi"), vmapi: n.of("vmapi")}
}

func (v *oldVMAPI) setJob(id string, job object) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.job[id] = job
}

func (v *oldVMAPI) getJob(w http.ResponseWriter, r *http.Request) {
	for waits := strings.HasSuffix(r.URL.Path, "/wait"); ; {
		v.mu.Lock()
		job := v.job[r.PathValue("j")]
		v.mu.Unlock()
		if job == nil {
			refuse(w, 404, "ResourceNotFound", "no such job")
			return
		}
		if !waits || job["execution"] != "running" {
			reply(w, 200, job)
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// feed is the change feed: one registration of each listener, and items as they come.
func (v *oldVMAPI) feed(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		reply(w, 200, object{"vm": object{}})
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	if _, _, err := conn.Read(r.Context()); err != nil {
		return
	}
	items := make(chan object, 1024)
	v.mu.Lock()
	v.listeners[items] = true
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.listeners, items)
	}()
	ctx, gone := context.WithCancel(r.Context())
	defer gone()
	v.running.Go(func() { // the listener's heartbeats
		defer gone()
		for ctx.Err() == nil {
			if _, _, err := conn.Read(ctx); err != nil {
				return
			}
		}
	})
	send := func(o object) error {
		text, err := json.Marshal(o)
		if err != nil {
			return err
		}
		return conn.Write(ctx, websocket.MessageText, text)
	}
	if send(object{"bootstrapRoutes": []any{object{"resource": "vm", "bootstrapRoute": "/vms"}}}) != nil {
		return
	}
	for {
		select {
		case item := <-items:
			if send(item) != nil {
				return
			}
		case <-ctx.Done():
			return
		case <-v.ctx.Done():
			return
		}
	}
}

// sell makes a package whose VMs need these traits of a server, and returns its UUID.
func (v *oldVMAPI) sell(traits object) (id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	id = uuid.NewString()
	v.packages[id] = traits
	return id
}
