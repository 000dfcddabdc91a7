package cutover

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// provision is 5.5, create, steps 5 to 9.
func (v *oldVMAPI) provision(ctx context.Context, n *names, vm object, nics []any) (err error) {
	id, server := text(vm, "uuid"), text(vm, "server_uuid")
	sent := false
	defer func() {
		if err == nil || sent {
			return
		}
		for _, nic := range nics {
			_ = call(ctx, http.MethodDelete, n.of("napi")+"/nics/"+text(nic.(object), "mac"), nil, nil)
		}
		_ = call(ctx, http.MethodPost, n.of("vmapi")+"/job_results", object{"execution": "failed", "vm_uuid": id}, nil)
	}()
	free, err := v.nat(ctx, n, vm, nics)
	defer free()
	if err != nil {
		return err
	}
	if _, err := v.task(ctx, n, http.MethodPost, "/servers/"+server+"/ensure-image", object{"image_uuid": vm["image_uuid"]}); err != nil {
		return err
	}
	payload := object{}
	for name, value := range vm {
		payload[name] = value
	}
	payload["nics"], payload["resolvers"] = nics, resolvers(nics)
	payload["routes"], payload["archive_on_delete"] = object{}, true
	delete(payload, "state")
	delete(payload, "zone_state")
	sent = true
	made, err := v.task(ctx, n, http.MethodPost, "/servers/"+server+"/vms", payload)
	if err != nil {
		return err
	}
	return v.put(ctx, n, id, made)
}

func resolvers(nics []any) []any {
	all := []any{}
	for _, nic := range nics {
		list, _ := nic.(object)["resolvers"].([]any)
		all = append(all, list...)
	}
	return all
}

// action is the job of an action, 5.5.
func (v *oldVMAPI) action(ctx context.Context, n *names, vm object, action string, p object) error {
	id, server := text(vm, "uuid"), text(vm, "server_uuid")
	release, err := take(ctx, n, server, "vm", id, action, nil)
	if err != nil {
		return err
	}
	defer release()
	path := "/servers/" + server + "/vms/" + id
	if want := map[string]string{"start": "stopped", "stop": "running"}[action]; want != "" {
		var now object
		if err := call(ctx, http.MethodGet, n.of("vmapi")+"/vms/"+id, nil, &now); err != nil {
			return err
		}
		if now["state"] != want {
			return fmt.Errorf("%s: the VM is %v, not %s", action, now["state"], want)
		}
		done, err := v.task(ctx, n, http.MethodPost, path+"/"+action, p)
		if err != nil {
			return err
		}
		return v.put(ctx, n, id, done)
	}
	switch action {
	case "update", "kill":
		done, err := v.task(ctx, n, http.MethodPost, path+"/"+action, p)
		if err != nil {
			return err
		}
		return v.put(ctx, n, id, done)
	case "add_nics":
		return v.addNICs(ctx, n, vm, p)
	case "destroy":
		return v.destroy(ctx, n, vm, path)
	}
	return fmt.Errorf("%s is not done here", action)
}

// destroy is 5.5, destroy, without its ticket.
func (v *oldVMAPI) destroy(ctx context.Context, n *names, vm object, path string) error {
	nics, _ := vm["nics"].([]any)
	networks := v.natNetworks(ctx, n, nics)
	if _, err := v.task(ctx, n, http.MethodDelete, path, object{}); err != nil {
		return err
	}
	for _, nic := range nics {
		err := call(ctx, http.MethodDelete, n.of("napi")+"/nics/"+text(nic.(object), "mac"), nil, nil)
		if err != nil && codeOf(err) != "ResourceNotFound" {
			return err
		}
	}
	for _, network := range networks {
		if err := v.unmakeNAT(ctx, n, network); err != nil {
			return fmt.Errorf("NAT zone: %w", err)
		}
	}
	return nil
}

func (v *oldVMAPI) addNICs(ctx context.Context, n *names, vm, p object) error {
	id, server := text(vm, "uuid"), text(vm, "server_uuid")
	macs, _ := p["macs"].([]any)
	var nics []any
	for _, mac := range macs {
		var nic object
		if err := call(ctx, http.MethodGet, n.of("napi")+"/nics/"+mac.(string), nil, &nic); err != nil {
			return err
		}
		nics = append(nics, nic)
	}
	// What follows from the networks goes along: routes, and the resolvers of all NICs.
	var all []any
	if err := call(ctx, http.MethodGet, n.of("napi")+"/nics?belongs_to_type=zone&belongs_to_uuid="+id, nil, &all); err != nil {
		return err
	}
	began := text(vm, "last_modified")
	done, err := v.task(ctx, n, http.MethodPost, "/servers/"+server+"/vms/"+id+"/update", object{"add_nics": nics, "set_routes": object{}, "resolvers": resolvers(all)})
	if err != nil {
		return err
	}
	// U: fed by the vm-agent alone (rule 6).
	err = poll(ctx, "a newer last_modified", func() (bool, error) {
		var list []object
		err := call(ctx, http.MethodGet, n.of("vmapi")+"/vms?uuid="+id, nil, &list)
		return err == nil && len(list) == 1 && text(list[0], "last_modified") > began, err
	})
	if err != nil {
		return err
	}
	return v.put(ctx, n, id, done)
}

// task starts a task and waits for it (5.3), and returns the VM of its end.
func (v *oldVMAPI) task(ctx context.Context, n *names, method, path string, body any) (vm object, err error) {
	var made struct{ ID string }
	if err := call(ctx, method, n.of("cnapi")+path, body, &made); err != nil {
		return nil, err
	}
	var t struct {
		Status  string
		History []struct{ Event object }
	}
	err = call(ctx, http.MethodGet, n.of("cnapi")+"/tasks/"+made.ID+"/wait?timeout=3600", nil, &t)
	for f := (*failure)(nil); errors.As(err, &f) && f.status == http.StatusNotFound; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
		err = call(ctx, http.MethodGet, n.of("cnapi")+"/tasks/"+made.ID, nil, &t)
	}
	if err != nil {
		return nil, err
	}
	if t.Status != "complete" {
		return nil, fmt.Errorf("%s %s: the task is %s: %v", method, path, t.Status, t.History)
	}
	if len(t.History) > 0 {
		vm, _ = t.History[0].Event["vm"].(object)
	}
	return vm, nil
}

// put is P.
func (v *oldVMAPI) put(ctx context.Context, n *names, id string, vm object) error {
	if vm == nil {
		return nil // polled for by its caller
	}
	return call(ctx, http.MethodPut, n.of("vmapi")+"/vms/"+id, vm, nil)
}
