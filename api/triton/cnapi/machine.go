package cnapi

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

const (
	createTask  = "machine_create"
	maxNetworks = 32 // that a VM is put on when it is made
	maxDraws    = 3  // of MACs, until all are free
	noState     = "provisioning"
)

// onNetwork is a network that a new VM is to be on, as VMAPI names one: a UUID, or
// an object with it.
type onNetwork struct {
	UUID    string   `json:"uuid"`
	V4      string   `json:"ipv4_uuid"`
	IP      string   `json:"ip"`
	IPs     []string `json:"ipv4_ips"`
	Primary bool     `json:"primary"`
}

// UnmarshalJSON reads either form.
func (n *onNetwork) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &n.UUID) == nil {
		return nil
	}
	type plain onNetwork
	return json.Unmarshal(b, (*plain)(n))
}

// nic is the NIC that it asks for, and what the task says of it.
func (n *onNetwork) nic(field string) (*log.NIC, []string, error) {
	nic, set := &log.NIC{BelongsToType: "zone"}, []string{"belongs_to_type", "belongs_to_uuid", "cn_uuid", "mac", "network_uuid", "owner_uuid", "primary"}
	var err error
	if nic.NetworkUUID, err = log.ParseUUID(n.UUID + n.V4); err != nil {
		return nil, nil, badField(field+".uuid", "send the UUID of a network or a pool", "%q is not a UUID", n.UUID+n.V4)
	}
	if len(n.IPs) > 1 {
		return nil, nil, badField(field+".ipv4_ips", "send one address", "a NIC has one address")
	}
	if text := n.IP + strings.Join(n.IPs, ""); text != "" {
		if nic.IP, err = netip.ParseAddr(text); err != nil {
			return nil, nil, badField(field+".ip", "send an address, or leave it out", "%q is no address", text)
		}
		set = append(set, "ip")
	}
	return nic, set, nil
}

// createMachine starts the task that makes a VM. If the request names networks instead
// of NICs, NICs are provisioned by the rules of POST /networks/UUID/nics, in one change
// with the VM and the task. The task has their MACs, the log the rest, which the node's
// agent reads. The NICs are released if the task fails (freed).
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
	for range maxDraws {
		if params["nics"], err = drawMACs(ops[1:]); err != nil {
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
		if !isTaken(refusal) {
			return inNetworkWords(refusal)
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
	vm := &log.VM{ServerUUID: cn, State: noState}
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
	var networks []onNetwork
	if err := json.Unmarshal(params["networks"], &networks); err != nil {
		return nil, badField("networks", `send a list, as in [{"uuid": "…", "primary": true}]`, "%s", wrongKind(err, "list of networks"))
	}
	if len(networks) == 0 || len(networks) > maxNetworks {
		return nil, badField("networks", fmt.Sprintf("send from 1 to %d", maxNetworks), "there are %d", len(networks))
	}
	ops := []log.Op{{Action: log.Create, Kind: log.KindVM, Set: set, Object: vm}}
	primary := 0
	for i, n := range networks {
		nic, set, err := n.nic(fmt.Sprintf("networks.%d", i))
		if err != nil {
			return nil, err
		}
		if n.Primary {
			primary = i
		}
		nic.BelongsToUUID, nic.OwnerUUID, nic.CNUUID = vm.UUID, vm.OwnerUUID, cn
		ops = append(ops, log.Op{Action: log.Create, Kind: log.KindNIC, Set: set, Object: nic})
	}
	ops[primary+1].Object.(*log.NIC).Primary = true
	return ops, nil
}

// oui is that of the MACs of VMs (spec/napi.md section 3.1).
var oui = [3]byte{0x90, 0xb8, 0xd0}

// drawMACs gives each NIC a MAC, and returns the NICs as a task names them.
func drawMACs(ops []log.Op) (json.RawMessage, error) {
	list := make([]map[string]any, len(ops))
	for i, op := range ops {
		nic := op.Object.(*log.NIC)
		copy(nic.MAC[:], oui[:])
		_, _ = rand.Read(nic.MAC[3:]) // it never fails
		list[i] = map[string]any{"mac": nic.MAC, "network_uuid": nic.NetworkUUID, "primary": nic.Primary}
	}
	return json.Marshal(list)
}

// isTaken reports whether the error is that another NIC has the MAC.
func isTaken(refusal *log.Refusal) bool {
	for _, e := range refusal.Errors {
		if strings.HasSuffix(e.Field, "mac") && e.Code == log.ElementDuplicate {
			return true
		}
	}
	return false
}

// inNetworkWords names the fields of a refusal as the request has them.
func inNetworkWords(refusal *log.Refusal) error {
	named := *refusal
	named.Errors = nil
	for _, e := range refusal.Errors {
		var at int
		var field string
		if n, _ := fmt.Sscanf(e.Field, "ops.%d.%s", &at, &field); n == 2 && at > 0 {
			e.Field = fmt.Sprintf("networks.%d.%s", at-1, field)
		} else if n == 2 {
			e.Field = field
		}
		named.Errors = append(named.Errors, e)
	}
	return &named
}

// provisioned are the NICs that were made for a task, by its params.
type provisioned struct {
	UUID     log.UUID        `json:"uuid"`
	Networks json.RawMessage `json:"networks"`
	NICs     []struct {
		MAC log.MAC `json:"mac"`
	} `json:"nics"`
}

// provisionedBy reads them; ok is false if there are none.
func provisionedBy(t *log.Task) (p provisioned, ok bool) {
	if t.Task != createTask || !strings.Contains(t.Params, `"networks"`) {
		return p, false
	}
	err := json.Unmarshal([]byte(t.Params), &p)
	return p, err == nil && p.Networks != nil
}

// freed returns the operations that release what was provisioned for VMs whose tasks
// have failed and that their nodes do not know. A VM that was made stays, even if it
// does not run.
func freed(state *projections.State) (list []over) {
	for rec := range state.TasksBy(true) {
		t := rec.Object.(*log.Task)
		p, ok := provisionedBy(t)
		if t.Status != log.TaskFailure || !ok || len(list) >= maxRemoved {
			continue
		}
		vm, known := state.Get(log.KindVM, p.UUID.String())
		if !known || vm.Object.(*log.VM).State != noState {
			continue
		}
		var ops []log.Op
		for _, one := range p.NICs {
			nic, known := state.Get(log.KindNIC, one.MAC.String())
			if known && nic.Object.(*log.NIC).BelongsToUUID == p.UUID {
				ops = append(ops, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: one.MAC.String(), IfMatch: nic.Revision, IfSeq: nic.Seq})
			}
		}
		gone := log.Op{Action: log.Delete, Kind: log.KindVM, ID: p.UUID.String(), IfMatch: vm.Revision, IfSeq: vm.Seq}
		ops = append(ops, gone)
		list = append(list, over{ops[0], "task " + t.ID() + ", for which it was provisioned, has failed", ops[1:]})
	}
	return list
}

// filled returns a task's params with all fields of the NICs, for a cn-agent, which
// does not read the log.
func (s *Service) filled(t *log.Task) json.RawMessage {
	p, ok := provisionedBy(t)
	if !ok {
		return asJSON(t.Params, "{}")
	}
	var params map[string]any
	_ = json.Unmarshal([]byte(t.Params), &params) // provisionedBy has read it
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
