package cutover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// caller is a front service (CloudAPI): it makes VMs, and changes and removes them, by
// the documented calls, one cycle after another.
type caller struct {
	names   *names
	network string // of every VM
	second  string // added later
	owner   string
	// billing is the package of every VM; "": one without traits. server is where every
	// VM is made; "": where it is placed.
	billing, server string
	// gate is held by each cycle; an operator who freezes takes it whole.
	gate *sync.RWMutex
	// begun and ended count cycles.
	begun, ended atomic.Int64
	// eachCall is called with the name of a call that was answered.
	eachCall func(name string)
}

// run makes cycles until ctx ends. The error is that of the first call that failed.
func (c *caller) run(ctx context.Context) error {
	for ctx.Err() == nil {
		c.gate.RLock()
		c.begun.Add(1)
		err := c.cycle(context.WithoutCancel(ctx))
		c.ended.Add(1)
		c.gate.RUnlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// cycle is the life of one VM.
func (c *caller) cycle(ctx context.Context) error {
	alias := "web-" + uuid.NewString()[:8]
	id, err := c.create(ctx, alias)
	if err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	for _, step := range []struct {
		name string
		do   func(ctx context.Context, id string) error
	}{
		{"stop", func(ctx context.Context, id string) error { return c.act(ctx, id, "stop", nil, "state", "stopped") }},
		{"start", func(ctx context.Context, id string) error { return c.act(ctx, id, "start", nil, "state", "running") }},
		{"add_nics", c.addNIC},
		{"resize", func(ctx context.Context, id string) error {
			return c.act(ctx, id, "update", object{"ram": 2048, "billing_id": uuid.NewString()}, "ram", 2048.0)
		}},
		{"delete", c.remove},
	} {
		if err := step.do(ctx, id); err != nil {
			return fmt.Errorf("%s of %s: %w", step.name, id, err)
		}
		c.eachCall(step.name)
	}
	return nil
}

// create is CreateMachine (5.7): the record must be there after 200 ms, once.
func (c *caller) create(ctx context.Context, alias string) (id string, err error) {
	var made struct {
		VM string `json:"vm_uuid"`
	}
	body := object{
		"owner_uuid": c.owner, "alias": alias, "brand": "joyent", "image_uuid": uuid.NewString(), "billing_id": cmp.Or(c.billing, uuid.NewString()), "ram": 1024, "quota": 10, "cpu_cap": 100,
		"networks": []any{object{"ipv4_uuid": c.network, "primary": true}},
	}
	if c.server != "" {
		body["server_uuid"] = c.server
	}
	if err := call(ctx, http.MethodPost, c.names.of("vmapi")+"/vms", body, &made); err != nil {
		return "", err
	}
	time.Sleep(200 * time.Millisecond)
	var vm object
	if err := call(ctx, http.MethodGet, c.names.of("vmapi")+"/vms/"+made.VM+"?owner_uuid="+c.owner, nil, &vm); err != nil {
		return "", fmt.Errorf("200 ms after the answer: %w", err)
	}
	if err := c.await(ctx, made.VM, "state", "running"); err != nil {
		return "", err
	}
	c.eachCall("provision")
	return made.VM, nil
}

// await waits until a VM has a value in a field.
func (c *caller) await(ctx context.Context, id, field string, want any) error {
	var vm object
	err := poll(ctx, fmt.Sprintf("%s %v", field, want), func() (bool, error) {
		vm = nil
		if err := call(ctx, http.MethodGet, c.names.of("vmapi")+"/vms/"+id+"?owner_uuid="+c.owner, nil, &vm); err != nil {
			return false, err
		}
		if vm["state"] == "failed" {
			return false, errors.New("it failed")
		}
		return vm[field] == want, nil
	})
	if err != nil {
		return fmt.Errorf("%w; it is %v", err, vm)
	}
	return nil
}

// act is an action, its job, and what it did.
func (c *caller) act(ctx context.Context, id, action string, body object, field string, want any) error {
	if body == nil {
		body = object{}
	}
	body["owner_uuid"] = c.owner
	if err := c.job(ctx, http.MethodPost, "/vms/"+id+"?action="+action, body); err != nil {
		return err
	}
	return c.await(ctx, id, field, want)
}

// job makes a call that is answered with a job, and waits for it.
func (c *caller) job(ctx context.Context, method, path string, body any) error {
	var begun struct {
		Job string `json:"job_uuid"`
	}
	if err := call(ctx, method, c.names.of("vmapi")+path, body, &begun); err != nil {
		return err
	}
	var job object
	if err := call(ctx, http.MethodGet, c.names.of("vmapi")+"/jobs/"+begun.Job+"/wait", nil, &job); err != nil {
		return err
	}
	if job["execution"] != "succeeded" {
		return fmt.Errorf("the job: %v", job)
	}
	return nil
}

// addNIC is AddNic (5.7).
func (c *caller) addNIC(ctx context.Context, id string) error {
	var vm, nic object
	if err := call(ctx, http.MethodGet, c.names.of("vmapi")+"/vms/"+id, nil, &vm); err != nil {
		return err
	}
	if err := call(ctx, http.MethodPost, c.names.of("napi")+"/networks/"+c.second+"/nics", object{
		"owner_uuid": c.owner, "belongs_to_uuid": id, "belongs_to_type": "zone", "state": "provisioning", "cn_uuid": vm["server_uuid"], "nic_tags_available": []string{"external", "admin"},
	}, &nic); err != nil {
		return err
	}
	if err := c.job(ctx, http.MethodPost, "/vms/"+id+"?action=add_nics", object{"owner_uuid": c.owner, "macs": []any{nic["mac"]}}); err != nil {
		return err
	}
	var nics []object
	if err := call(ctx, http.MethodGet, c.names.of("napi")+"/nics?belongs_to_uuid="+id+"&belongs_to_type=zone", nil, &nics); err != nil {
		return err
	}
	if len(nics) != 2 {
		return fmt.Errorf("NAPI has %d NICs of it, want 2", len(nics))
	}
	return nil
}

// remove is the delete, until inventory says destroyed (rule 7).
func (c *caller) remove(ctx context.Context, id string) error {
	if err := c.job(ctx, http.MethodDelete, "/vms/"+id, nil); err != nil {
		return err
	}
	if err := c.await(ctx, id, "state", "destroyed"); err != nil {
		return err
	}
	// The second NIC came after the VM's first record: net-agent removes it on a real node.
	var nics []object
	if err := call(ctx, http.MethodGet, c.names.of("napi")+"/nics?belongs_to_uuid="+id+"&belongs_to_type=zone", nil, &nics); err != nil {
		return err
	}
	for _, nic := range nics {
		if err := call(ctx, http.MethodDelete, c.names.of("napi")+"/nics/"+text(nic, "mac"), nil, nil); err != nil && codeOf(err) != "ResourceNotFound" {
			return err
		}
	}
	return nil
}
