package backend

import (
	"net/http"
	"slices"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/underlay"
)

// maxWarnings bounds the warnings in one answer.
const maxWarnings = 8

// Warn adds to an answer what operators must know about a change that was accepted: MTUs
// of networks that the underlay of a compute node does not carry. ids are those of the
// result. An answer without a warning stays as it is.
func Warn(w http.ResponseWriter, view func(fn func(*projections.State, log.Cursor)), ops []log.Op, ids []string) {
	if !slices.ContainsFunc(ops, writesMTU) {
		return
	}
	view(func(state *projections.State, _ log.Cursor) {
		for i := range ops {
			if !writesMTU(ops[i]) || i >= len(ids) || len(w.Header()[rest.HeaderWarning]) == maxWarnings {
				continue
			}
			r, ok := state.Get(log.KindNetwork, ids[i])
			if !ok {
				continue // this server has not applied the change yet, or it is gone again
			}
			if text := underlay.Warning(state, r.Object.(*log.Network), ops[i].Object.(*log.Network).MTU); text != "" {
				w.Header().Add(rest.HeaderWarning, text)
			}
		}
	})
}

// writesMTU reports whether an operation says which MTU a network has.
func writesMTU(op log.Op) bool {
	_, is := op.Object.(*log.Network)
	return is && op.Kind == log.KindNetwork && (op.Action == log.Create || op.Action == log.Update && (slices.Contains(op.Set, "mtu") || slices.Contains(op.Set, "vlan_id")))
}
