package projections

import (
	"fmt"

	"rutter/log"
)

func (d *draft) delete(op *log.Op) string {
	r, ok := d.target(op)
	if !ok {
		return ""
	}
	switch o := r.Object.(type) {
	case *log.NICTag:
		d.unused(o, "nic tag is in use", "delete the networks on it, and take it from the NICs, first",
			func(s *store) *sorted[*row] { return s.netsOnTag[o.Name] },
			func(s *store) *sorted[*row] { return s.nicsOnTag[o.Name] },
			func(s *store) *sorted[*row] { return s.byNet.aggrsOnTag[o.Name] })
	case *log.Network:
		d.unused(o, "network must have no NICs provisioned", "delete its NICs first",
			func(s *store) *sorted[*row] { return s.nicsOnNet[o.UUID] })
	case *log.Server:
		d.unused(o, "server is in use", "delete its VMs, VMMs and NICs first",
			func(s *store) *sorted[*row] { return s.nicsOnCN[o.UUID] },
			func(s *store) *sorted[*row] { return s.nicsOf.of(o.UUID) },
			func(s *store) *sorted[*row] { return s.byNet.aggrsOn[o.UUID] },
			func(s *store) *sorted[*row] { return s.vmsOnCN[o.UUID] },
			func(s *store) *sorted[*row] { return s.vmmsOnCN[o.UUID] },
			func(s *store) *sorted[*row] { return s.openTasks[o.UUID] })
	case *log.Task:
		if !o.Ended() {
			d.refuse(log.CodeInUse, "task "+o.ID()+" is "+o.Status+": it has not ended", usedBy("id", "server", o.ServerUUID.String(), "wait for its end, or set its status to failure with the reason"))
		}
	case *log.Revocation:
		d.deleteRevocation(o)
	case *log.Setting:
		d.deleteSetting(o)
	case *log.Authority:
		d.refuse(log.CodeInUse, "an authority stays: without it nobody would be let in; update its certificates")
	case *log.VM:
		d.unused(o, "vm is in use", "delete its NICs and VMMs first",
			func(s *store) *sorted[*row] { return s.nicsOf.of(o.UUID) },
			func(s *store) *sorted[*row] { return s.vmmsOf[o.UUID] })
	}
	if d.deleteNet(r.Object); d.refused() {
		return ""
	}
	d.precede(r.Object)
	id := d.emit(r, nil)
	d.follow(r.Object, nil)
	d.succeed(r.Object)
	return id
}

// unused refuses the deletion of an object that any of the indexes shows to be
// in use; it names the first few users.
func (d *draft) unused(o log.Object, message, remedy string, picks ...func(*store) *sorted[*row]) {
	var users []log.FieldError
	named := make(map[rowKey]bool)
	for _, pick := range picks {
		for user := range d.rows(pick) {
			k := rowKey{user.Kind(), user.ID()}
			if named[k] {
				continue // a server's own NIC is both on it and of it
			}
			if len(users) == maxUsedBy {
				d.refuse(log.CodeInUse, message+"; the first users are named", users...)
				return
			}
			named[k] = true
			users = append(users, usedBy(idField[o.Kind()], user.Kind().String(), user.ID(), remedy))
		}
	}
	if users != nil {
		d.refuse(log.CodeInUse, message, users...)
	}
}

func usedBy(field, kind, id, remedy string) log.FieldError {
	return log.FieldError{
		Field: field, Code: log.ElementUsedBy, Message: fmt.Sprintf("In use by %s \"%s\"", kind, id),
		Remedy: remedy, Type: kind, ID: id,
	}
}
