package vmapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"rutter/api/triton/internal/provision"
	"rutter/log"
	"rutter/log/vmobject"
	"rutter/projections"
)

// maxMACs bounds the NICs that one request adds or removes.
const maxMACs = 64

// addNICs answers action=add_nics. With networks, NICs are provisioned in one change with
// the node's task; with macs, the task names NICs that there are. If the task fails, both
// are freed, as VMAPI's job does it (package provision).
func (s *Service) addNICs(w http.ResponseWriter, r *http.Request, fields vmobject.Object, sync bool) error {
	vm, _, err := s.find1(r)
	if err != nil {
		return err
	}
	if err := s.needAgent(vm, "action=add_nics"); err != nil {
		return err
	}
	payload := map[string]json.RawMessage{"networks": json.RawMessage("[]")}
	if payload["uuid"], err = json.Marshal(vm.UUID); err != nil {
		return err
	}
	var ops []log.Op
	if _, given := fields["networks"]; given {
		if ops, err = s.nicsOn(vm, fields["networks"], payload); err != nil {
			return err
		}
		result, at, err := s.provisioned(r, vm, provision.UpdateTask, "add_nics", ops, payload, nil)
		if err != nil {
			return err
		}
		return s.answerTask(w, r, sync, vm.UUID, result, at)
	}
	macs, err := macsOf(fields)
	if err != nil {
		return err
	}
	list, err := s.nicsThatAre(vm, macs)
	if err != nil {
		return err
	}
	if payload["add_nics"], err = json.Marshal(list); err != nil {
		return err
	}
	return s.updateTask(w, r, vm, payload, sync)
}

// nicsOn are the operations that make NICs on the networks of a request.
func (s *Service) nicsOn(vm *log.VM, given any, payload map[string]json.RawMessage) ([]log.Op, error) {
	raw, err := json.Marshal(given)
	if err != nil {
		return nil, err
	}
	networks, err := provision.Networks(raw)
	if err != nil {
		return nil, inVMAPIWords(err)
	}
	var wrong problems
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) { resolve(state, vm.OwnerUUID, networks, &wrong) })
	if err := wrong.err(); err != nil {
		return nil, err
	}
	payload["networks"] = raw
	nics, err := provision.NICs(vm, networks, false)
	return nics, inVMAPIWords(err)
}

// macsOf reads the field macs, or mac: MACs with colons or without.
func macsOf(fields vmobject.Object) (macs []log.MAC, err error) {
	given, is := fields["macs"]
	if one, also := fields["mac"]; !is && also {
		given, is = []any{one}, true
	}
	if !is {
		return nil, missing("macs", "send macs, a list of MAC addresses, or networks")
	}
	list, isList := given.([]any)
	if !isList || len(list) == 0 || len(list) > maxMACs {
		return nil, invalid("macs", "it must be a list of 1 to %d MAC addresses", maxMACs)
	}
	for _, one := range list {
		text, _ := one.(string)
		mac, err := log.ParseMAC(text)
		if err != nil {
			return nil, invalid("macs", "%.40q is no MAC address", plain(one))
		}
		if slices.Contains(macs, mac) {
			return nil, invalid("macs", "%s is named twice", mac)
		}
		macs = append(macs, mac)
	}
	return macs, nil
}

// nicsThatAre are NICs of the log as a task names them: the VM's own, which its node has
// not yet.
func (s *Service) nicsThatAre(vm *log.VM, macs []log.MAC) (list []map[string]any, err error) {
	var wrong problems
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		for i, mac := range macs {
			rec, known := state.Get(log.KindNIC, mac.String())
			nic, _ := rec.Object.(*log.NIC)
			switch {
			case !known:
				wrong.add(fmt.Sprintf("macs.%d", i), "nic "+mac.String()+" not found")
			case nic.BelongsToUUID != vm.UUID || nic.BelongsToType != "zone":
				wrong.add(fmt.Sprintf("macs.%d", i), "nic "+mac.String()+" does not belong to the VM")
			default:
				list = append(list, map[string]any{"mac": mac, "network_uuid": nic.NetworkUUID, "primary": nic.Primary})
			}
		}
	})
	return list, wrong.err()
}

// removeNICs answers action=remove_nics: the node takes the NICs from the VM, and then out
// of the log.
func (s *Service) removeNICs(w http.ResponseWriter, r *http.Request, fields vmobject.Object, sync bool) error {
	vm, _, err := s.find1(r)
	if err != nil {
		return err
	}
	if err := s.needAgent(vm, "action=remove_nics"); err != nil {
		return err
	}
	macs, err := macsOf(fields)
	if err != nil {
		return err
	}
	if _, err := s.nicsThatAre(vm, macs); err != nil {
		return err
	}
	payload := map[string]json.RawMessage{}
	if payload["uuid"], err = json.Marshal(vm.UUID); err != nil {
		return err
	}
	if payload["remove_nics"], err = json.Marshal(macs); err != nil {
		return err
	}
	return s.updateTask(w, r, vm, payload, sync)
}

// updateTask writes a task that updates a VM on its node, and answers.
func (s *Service) updateTask(w http.ResponseWriter, r *http.Request, vm *log.VM, payload map[string]json.RawMessage, sync bool) error {
	text, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	result, err := s.writeOps(r.Context(), r, log.Op{
		Action: log.Create, Kind: log.KindTask, Set: []string{"params", "req_id", "server_uuid", "task"},
		Object: &log.Task{Task: provision.UpdateTask, ServerUUID: vm.ServerUUID, Params: string(text), ReqID: r.Header.Get("x-request-id")},
	})
	if err != nil {
		return err
	}
	return s.answerTask(w, r, sync, vm.UUID, result, 0)
}
