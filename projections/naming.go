package projections

import (
	"encoding/json"
	"strings"

	"rutter/log"
)

// Naming are the tasks, tickets and IP objects that name a VM, whether it is known or
// not: a task by uuid, vm_uuid or instance_id of its params, a ticket by its id, an
// address by its belongs_to_uuid. NICsOf, VMMsOf, MigrationsOf and RoutersOf are the
// other objects that name it.
func Naming(vm log.UUID) Index {
	return Index{func(s *store) *sorted[*row] { return s.naming[vm] }}
}

// VMOfTask is the VM that a task's params name; zero if they name none.
func VMOfTask(t *log.Task) (vm log.UUID) {
	if !strings.Contains(t.Params, "u") { // no name of a VM is without
		return vm
	}
	var params struct {
		UUID       json.RawMessage `json:"uuid"`
		VMUUID     json.RawMessage `json:"vm_uuid"`
		InstanceID json.RawMessage `json:"instance_id"`
	}
	if json.Unmarshal([]byte(t.Params), &params) != nil {
		return vm
	}
	for _, raw := range []json.RawMessage{params.UUID, params.VMUUID, params.InstanceID} {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			continue
		}
		if id, err := log.ParseUUID(text); err == nil && !id.IsZero() {
			return id
		}
	}
	return vm
}

// vmOfTicket is the VM that a ticket is for; zero if it is for something else.
func vmOfTicket(t *log.Ticket) log.UUID {
	id, err := log.ParseUUID(t.OfID)
	if err != nil {
		return log.UUID{}
	}
	return id
}
