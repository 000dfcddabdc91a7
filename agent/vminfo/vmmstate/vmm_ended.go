package vmmstate

import (
	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// whyEnded is the state of a VMM whose process ended unasked, with the reason: a guest that
// switched itself off has not failed.
func (m *Table) whyEnded(vm log.UUID, reason string) (state, why string) {
	held, ok := m.cfg.Store.Get(vm)
	if !ok {
		return VMMFailed, reason
	}
	v, err := vmdoc.ParseValue(held.JSON)
	if err != nil {
		panic("vminfo: a VM that is not JSON was stored")
	}
	switch said := v.Text(vmdoc.ExitReason); said {
	case "":
		return VMMFailed, reason
	case vmdoc.GuestShutdown, vmdoc.GuestReset:
		return VMMDestroyed, ""
	case vmdoc.GuestPanic:
		return VMMFailed, "the guest's kernel reported that it cannot go on (" + said + ")"
	default:
		return VMMFailed, reason + " (" + said + ")"
	}
}
