package cnapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"rutter/api/internal/rest"
	"rutter/api/triton/internal/provision"
	"rutter/log"
	"rutter/projections"
)

const (
	createTask = provision.CreateTask
	// maxTries is how often a change is tried whose objects are changed meanwhile.
	maxTries = 3
)

// createMachine starts the task that makes a VM. If the request names networks instead
// of NICs, NICs are provisioned by the rules of POST /networks/UUID/nics, in one change
// with the VM and the task. The task has their MACs, the log the rest, which the node's
// agent reads. The NICs are released if the task fails (provision.Freed).
func (s *Service) createMachine(w http.ResponseWriter, r *http.Request) error {
	fields, err := fieldsOf(r)
	if err != nil {
		return err
	}
	params := without(fields, "timeout", "req_id", "server_uuid")
	if _, given := params["networks"]; !given {
		return s.start(w, r, createTask, fields, params)
	}
	o, err := s.needServer(r)
	if err != nil {
		return err
	}
	ops, err := machineOps(o.UUID, params)
	if err != nil {
		return err
	}
	var result log.Result
	for range provision.MaxDraws {
		if params["nics"], err = provision.Draw(ops[1:]); err != nil {
			return err
		}
		t, err := s.taskOf(r, o, createTask, fields, params)
		if err != nil {
			return err
		}
		if result, err = s.propose(r.Context(), r, append(ops, log.Op{Action: log.Create, Kind: log.KindTask, Object: t})...); err == nil {
			break
		}
		var refusal *log.Refusal
		if !errors.As(err, &refusal) {
			return err
		}
		if !provision.IsTaken(refusal) {
			return provision.InWords(refusal, 1)
		}
	}
	if len(result.IDs) == 0 {
		return failure(http.StatusServiceUnavailable, rest.CodeUnavailable, "no MAC was free: try again")
	}
	rest.WriteJSON(w, r, http.StatusOK, map[string]any{"id": result.IDs[len(result.IDs)-1]})
	return nil
}

// machineOps are those that make a VM and its NICs, which have no MACs yet.
func machineOps(cn log.UUID, params map[string]json.RawMessage) ([]log.Op, error) {
	if _, given := params["nics"]; given {
		return nil, badField("nics", "send networks, or NICs that there are", "networks are given as well")
	}
	vm := &log.VM{ServerUUID: cn, State: provision.Unmade}
	set := []string{"owner_uuid", "server_uuid", "state", "uuid"}
	for name, to := range map[string]*log.UUID{"uuid": &vm.UUID, "owner_uuid": &vm.OwnerUUID} {
		text, err := textField(params, name)
		if err != nil {
			return nil, err
		}
		if text == "" {
			return nil, missingField(name, "send the UUID of the VM, and that of its owner")
		}
		if *to, err = log.ParseUUID(text); err != nil || to.IsZero() {
			return nil, badField(name, "send a UUID of 36 characters", "%q is not a UUID", text)
		}
	}
	for name, to := range map[string]*string{"alias": &vm.Alias, "brand": &vm.Brand} {
		text, err := textField(params, name)
		if err != nil {
			return nil, err
		}
		if *to = text; text != "" {
			set = append(set, name)
		}
	}
	networks, err := provision.Networks(params["networks"])
	if err != nil {
		return nil, inCNAPIWords(err)
	}
	nics, err := provision.NICs(vm, networks, true)
	return append([]log.Op{{Action: log.Create, Kind: log.KindVM, Set: set, Object: vm}}, nics...), inCNAPIWords(err)
}

// inCNAPIWords is the answer to a request that package provision found wrong.
func inCNAPIWords(err error) error {
	var wrong *provision.Invalid
	if errors.As(err, &wrong) {
		return badField(wrong.Field, wrong.Remedy, "%s", wrong.Message)
	}
	return err
}

// filled returns a task's params with all fields of the NICs, for a cn-agent, which
// does not read the log.
func (s *Service) filled(t *log.Task) json.RawMessage {
	p, ok := provision.Of(t)
	if !ok || t.Task != createTask {
		return asJSON(t.Params, "{}")
	}
	var params map[string]any
	_ = json.Unmarshal([]byte(t.Params), &params) // provision.Of has read it
	delete(params, "networks")
	nics := []map[string]any{}
	s.store.View(func(state *projections.State, _ log.Cursor) {
		for _, one := range p.NICs {
			if rec, ok := state.Get(log.KindNIC, one.MAC.String()); ok {
				nics = append(nics, machineNIC(rec.Object.(*log.NIC), state))
			}
		}
	})
	params["nics"] = nics
	b, err := json.Marshal(params)
	if err != nil {
		return asJSON(t.Params, "{}")
	}
	return b
}

// machineNIC is a NIC as vmadm takes it.
func machineNIC(nic *log.NIC, state *projections.State) map[string]any {
	m := map[string]any{"mac": nic.MAC, "ip": nic.IP, "primary": nic.Primary, "network_uuid": nic.NetworkUUID, "nic_tag": nic.NICTag, "vlan_id": nic.VLANID}
	n := state.Network(nic.NetworkUUID)
	if n == nil {
		return m
	}
	m["mtu"], m["ips"], m["nic_tag"], m["vlan_id"] = n.MTU, []string{netip.PrefixFrom(nic.IP, n.Subnet.Bits()).String()}, n.NICTag, n.VLANID
	if n.Fabric {
		m["nic_tag"] = fmt.Sprintf("%s/%d", n.NICTag, n.VNetID)
	}
	if n.Gateway.IsValid() {
		m["gateway"] = n.Gateway
	}
	return m
}

// ensureImage is the step before a VM is made. A node with Rutter's agent has no images: a
// VM's files are there, or on its disks, before it is made. So nothing is to be done on the
// node, and a task says so.
func (s *Service) ensureImage(w http.ResponseWriter, r *http.Request) error {
	fields, err := fieldsOf(r)
	if err != nil {
		return err
	}
	image, err := textField(fields, "image_uuid")
	if err != nil {
		return err
	}
	if _, err := log.ParseUUID(image); err != nil {
		return badField("image_uuid", "send the UUID of the image", "%.40q is not a UUID", image)
	}
	return s.start(w, r, "nop", fields, map[string]json.RawMessage{})
}
