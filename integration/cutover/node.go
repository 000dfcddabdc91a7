package cutover

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"
)

// node is a compute node of SmartOS: its VMs, its cn-agent and its vm-agent.
type node struct {
	id    string
	names *names
	tags  []string // of its second link

	mu     sync.Mutex // protects what follows
	vms    map[string]object
	events chan object // whole objects for vm-agent to put
}

func newNode(id string, names *names, tags ...string) *node {
	return &node{id: id, names: names, tags: append([]string{}, tags...), vms: make(map[string]object), events: make(chan object, 1024)}
}

// run is cn-agent's heartbeat and vm-agent, until ctx ends.
func (n *node) run(ctx context.Context) {
	var agents sync.WaitGroup
	agents.Go(func() { n.beat(ctx) })
	agents.Go(func() { n.report(ctx) })
	agents.Wait()
}

// sysinfo is what SmartOS's cn-agent posts, by its keys (4.1).
func (n *node) sysinfo() object {
	last := n.id[len(n.id)-2:]
	nic := func(mac, ip string, names ...string) object {
		return object{"MAC Address": mac + ":" + last, "ip4addr": ip, "Link Status": "up", "NIC Names": names}
	}
	ip := "10.99.0." + strings.TrimPrefix(last, "0")
	return object{
		"Live Image": "20260101T000000Z", "System Type": "SunOS", "Boot Time": "1767225600", "Datacenter Name": "dc1", "SDC Version": "7.0", "Manufacturer": "Maker", "Product": "Server",
		"Serial Number": "S1", "SKU Number": "", "HW Version": "", "HW Family": "", "Setup": "true", "VM Capable": true, "Bhyve Capable": false, "Bhyve Max Vcpus": 0, "HVM API": false,
		"CPU Type": "Fast", "CPU Virtualization": "vmx", "CPU Physical Cores": 2, "UUID": n.id, "Hostname": "old0", "CPU Total Cores": 16, "MiB of Memory": "65522",
		"Zpool": "zones", "Zpool Disks": "c1t0d0", "Zpool Profile": "striped", "Zpool Creation": 1767225000, "Zpool Size in GiB": 1612, "Disks": object{"c1t0d0": object{"Size in GB": 1798}},
		"Boot Parameters": object{"hostname": "old0", "console": "ttyb", "boot_args": "", "bootargs": ""}, "SDC Agents": []object{{"name": "cn-agent", "version": "2.0.2"}},
		"Network Interfaces":         object{"ixgbe0": nic("00:50:56:00:01", ip, "admin"), "ixgbe1": nic("00:50:56:00:02", "", n.tags...)},
		"Virtual Network Interfaces": object{"sdc_underlay0": object{"MAC Address": "00:50:56:00:03:" + last, "ip4addr": "172.31.1.6", "Link Status": "up", "Host Interface": "ixgbe1", "Overlay Nic Tags": []string{"sdc_overlay"}, "VLAN": "2701"}},
		"Link Aggregations":          object{}, "CN Agent Port": 5309,
	}
}

// statusFields are those that cn-agent tells of a VM.
var statusFields = []string{"brand", "cpu_cap", "last_modified", "max_physical_memory", "owner_uuid", "quota", "state", "uuid", "zone_state"}

// status is cn-agent's status event (4.1).
func (n *node) status() object {
	n.mu.Lock()
	defer n.mu.Unlock()
	vms := object{}
	for id, vm := range n.vms {
		of := object{}
		for _, name := range statusFields {
			of[name] = vm[name]
		}
		vms[id] = of
	}
	return object{
		"vms": vms, "zpoolStatus": object{"zones": object{"bytes_available": 1500 << 30, "bytes_used": 112 << 30}},
		"meminfo": object{"availrmem_bytes": 60 << 30, "arcsize_bytes": 1 << 30, "total_bytes": 65522 << 20},
		"diskinfo": object{
			"kvm_zvol_used_bytes": 0, "kvm_zvol_volsize_bytes": 0, "kvm_quota_bytes": 0, "kvm_quota_used_bytes": 0, "zone_quota_bytes": 0, "zone_quota_used_bytes": 0,
			"cores_quota_bytes": 0, "cores_quota_used_bytes": 0, "installed_images_used_bytes": 0, "pool_size_bytes": 1612 << 30, "pool_alloc_bytes": 112 << 30, "system_used_bytes": 1 << 30,
		},
		"boot_time": "2026-01-01T00:00:00.000Z", "timestamp": now(),
	}
}

// beat is cn-agent's queue: one request at a time. Its pauses are shorter than the real
// one's, so that a status often meets a change.
func (n *node) beat(ctx context.Context) {
	path := "/servers/" + n.id
	for first := true; ctx.Err() == nil; {
		var err error
		if first {
			err = call(ctx, http.MethodPost, n.names.of("cnapi")+path+"/sysinfo", object{"sysinfo": n.sysinfo()}, nil)
			first = err != nil
		}
		if err == nil { // the next ones come soon
			_ = call(ctx, http.MethodPost, n.names.of("cnapi")+path+"/events/heartbeat", object{}, nil)
			_ = call(ctx, http.MethodPost, n.names.of("cnapi")+path+"/events/status", n.status(), nil)
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
			"server_uuid": n.id, "nics": p["nics"], "ram": p["ram"], "max_physical_memory": p["ram"], "quota": p["quota"], "cpu_cap": p["cpu_cap"],
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
