package provision

import (
	"encoding/json"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// The tasks that make VMs and NICs on a compute node, by CNAPI's names for them.
const (
	CreateTask = "machine_create"
	UpdateTask = "machine_update"
)

// Unmade is the state of a VM and of a NIC that the log has before their node.
const Unmade = "provisioning"

// Made is what was made in the log for a task, by the task's params.
type Made struct {
	UUID     log.UUID        `json:"uuid"`
	Networks json.RawMessage `json:"networks"`
	NICs     []one           `json:"nics"`
	Added    []one           `json:"add_nics"`
	Removed  []log.MAC       `json:"remove_nics"`
}

type one struct {
	MAC log.MAC `json:"mac"`
}

// Of reads what was made for a task; ok is false if nothing was.
func Of(t *log.Task) (m Made, ok bool) {
	if t.Task != CreateTask && t.Task != UpdateTask || !strings.Contains(t.Params, `"networks"`) {
		return m, false
	}
	err := json.Unmarshal([]byte(t.Params), &m)
	return m, err == nil && m.Networks != nil
}

// Release is what of the log is freed, as one change, and why.
type Release struct {
	Ops []log.Op
	Why string
}

// Freed returns what is to be freed of the log, at most most changes: what was made for
// VMs and NICs whose tasks have failed and that their nodes do not know, and NICs that a
// task took from a VM before the node had told of them. A VM that was made stays, even if
// it does not run, and so does a NIC that the node has told of. What was made later than a
// task, by the same name, is another's.
func Freed(state *projections.State, most int) (list []Release) {
	for rec := range state.TasksBy(true) {
		t := rec.Object.(*log.Task)
		if len(list) >= most {
			break
		}
		if ops, why := freedBy(state, t); len(ops) > 0 {
			list = append(list, Release{ops, why})
		}
	}
	return list
}

func freedBy(state *projections.State, t *log.Task) (ops []log.Op, why string) {
	if t.Status == log.TaskComplete && t.Task == UpdateTask && strings.Contains(t.Params, `"remove_nics"`) {
		return removed(state, t), "task " + t.ID() + " took it from its VM"
	}
	m, ok := Of(t)
	if t.Status != log.TaskFailure || !ok {
		return nil, ""
	}
	why = "task " + t.ID() + ", for which it was provisioned, has failed"
	if t.Task == UpdateTask {
		return deletions(state, t, m.UUID, m.Added, isUnmade), why
	}
	vm, known := state.Get(log.KindVM, m.UUID.String())
	if !known {
		return nil, ""
	}
	if o := vm.Object.(*log.VM); o.State != Unmade || o.CreateTimestamp > t.Created {
		return nil, ""
	}
	ops = deletions(state, t, m.UUID, m.NICs, func(*log.NIC) bool { return true })
	return append(ops, log.Op{Action: log.Delete, Kind: log.KindVM, ID: m.UUID.String(), IfMatch: vm.Revision, IfSeq: vm.Seq}), why
}

// isUnmade reports whether the node of a NIC's VM has told nothing of the NIC.
func isUnmade(nic *log.NIC) bool { return nic.State == Unmade }

// deletions are those of the NICs of a VM that are not younger than the task and of which
// is says so.
func deletions(state *projections.State, t *log.Task, vm log.UUID, nics []one, is func(*log.NIC) bool) (ops []log.Op) {
	for _, one := range nics {
		rec, known := state.Get(log.KindNIC, one.MAC.String())
		if !known {
			continue
		}
		if nic := rec.Object.(*log.NIC); nic.BelongsToUUID == vm && nic.Created <= t.Created && is(nic) {
			ops = append(ops, log.Op{Action: log.Delete, Kind: log.KindNIC, ID: nic.MAC.String(), IfMatch: rec.Revision, IfSeq: rec.Seq})
		}
	}
	return ops
}

// removed are the deletions of NICs that a task took from a VM before its node had told of
// them: the node deletes the others itself.
func removed(state *projections.State, t *log.Task) []log.Op {
	var m Made
	if json.Unmarshal([]byte(t.Params), &m) != nil {
		return nil // texts that are no MACs: the node has refused them
	}
	nics := make([]one, len(m.Removed))
	for i, mac := range m.Removed {
		nics[i].MAC = mac
	}
	return deletions(state, t, m.UUID, nics, isUnmade)
}
