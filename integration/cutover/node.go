package cutover

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"time"
)

// node is a compute node of SmartOS: its VMs, its cn-agent and its vm-agent.
type node struct {
	id    string
	names *names

	mu     sync.Mutex // protects what follows
	vms    map[string]object
	events chan object // whole objects for vm-agent to put
}

func newNode(id string, names *names) *node {
	return &node{id: id, names: names, vms: make(map[string]object), events: make(chan object, 1024)}
}

// run is cn-agent's heartbeat and vm-agent, until ctx ends.
func (n *node) run(ctx context.Context) {
	var agents sync.WaitGroup
	agents.Go(func() { n.beat(ctx) })
	agents.Go(func() { n.report(ctx) })
	agents.Wait()
}

func (n *node) sysinfo() object {
	return object{
		"UUID": n.id, "Hostname": "old0", "Setup": true, "CN Agent Port": 5309, "MiB of Memory": "65536", "Live Image": "20260101T000000Z",
		"CPU Core Count": 16, "Zpool Size in GiB": 500,
		"Network Interfaces": object{"e1000g0": object{"MAC Address": "00:50:56:00:00:01", "ip4addr": "10.99.0.20", "NIC Names": []string{"external", "admin"}, "Link Status": "up"}},
	}
}

func (n *node) beat(ctx context.Context) {
	path := "/servers/" + n.id
	for first := true; ctx.Err() == nil; {
		var err error
		if first {
			err = call(ctx, http.MethodPost, n.names.of("cnapi")+path+"/sysinfo", object{"sysinfo": n.sysinfo()}, nil)
			first = err != nil
		}
		if err == nil {
			_ = call(ctx, http.MethodPost, n.names.of("cnapi")+path+"/events/heartbeat", object{}, nil) // the next comes soon
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// report puts one VM after another, each until it is taken.
func (n *node) report(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case vm := <-n.events:
			for pause := 10 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, time.Second) {
				if call(ctx, http.MethodPut, n.names.of("vmapi")+"/vms/"+text(vm, "uuid"), vm, nil) == nil {
					break
				}
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		}
	}
}

// do is a task of cn-agent: it changes a VM and returns it.
func (n *node) do(task string, p object) (vm object, problem string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id := text(p, "uuid")
	have := n.vms[id]
	if task != "machine_create" && have == nil {
		return nil, "VM.load error: no such VM"
	}
	vm = maps.Clone(have)
	switch task {
	case "machine_create":
		vm = object{
			"uuid": id, "owner_uuid": p["owner_uuid"], "alias": p["alias"], "brand": p["brand"], "image_uuid": p["image_uuid"], "billing_id": p["billing_id"],
			"server_uuid": n.id, "nics": p["nics"], "ram": p["ram"], "max_physical_memory": p["ram"], "quota": p["quota"],
			"create_timestamp": now(), "resolvers": p["resolvers"], "zonepath": "/zones/" + id, "zonename": id, "state": "running", "zone_state": "running",
			"tags": object{}, "customer_metadata": object{}, "internal_metadata": object{},
		}
	case "machine_boot", "machine_reboot":
		vm["state"], vm["zone_state"] = "running", "running"
	case "machine_shutdown":
		vm["state"], vm["zone_state"] = "stopped", "installed"
	case "machine_update":
		if ram, ok := p["ram"]; ok {
			vm["ram"], vm["max_physical_memory"] = ram, ram
		}
		if more, ok := p["add_nics"].([]any); ok {
			list, _ := vm["nics"].([]any)
			vm["nics"] = append(append([]any{}, list...), more...)
		}
	case "machine_destroy":
		vm["state"], vm["zone_state"] = "destroyed", "destroyed"
	}
	vm["last_modified"] = now()
	n.vms[id] = vm
	if task == "machine_destroy" {
		delete(n.vms, id)
	}
	n.events <- maps.Clone(vm)
	return maps.Clone(vm), ""
}
