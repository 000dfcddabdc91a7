package libvirt

import (
	"context"
	"errors"
	"slices"
	"time"

	"rutter/agent/vmsource/registered"
	"rutter/log"
	"rutter/projections"
)

// Taking is a registered.Servers by which a domain that migrates to this node comes to it in
// the log: its VM is on another node there. A node takes a VM only while an operator's VMM of
// it is placed on the node. The log refuses it elsewhere where nodes have certificates; where
// they have none, only the node itself can.
type Taking struct {
	registered.Servers
	CN    log.UUID
	Node  registered.Node
	NewID func() log.UUID
	// Placed reports whether an operator has placed a VM on this node, as the servers know: a
	// VMM of it here that was made for a VM of another node, and has not ended.
	Placed func(ctx context.Context, vm log.UUID) (bool, error)
}

// seen bounds how long the NICs of a VM that was taken are waited for, in this node's part
// of the log.
const (
	seen     = 5 * time.Second
	seenLook = 10 * time.Millisecond
)

// Submit implements registered.Servers.
func (t Taking) Submit(ctx context.Context, change *log.Change, wait time.Duration) (log.Result, error) {
	result, err := t.Servers.Submit(ctx, change, wait)
	var refusal *log.Refusal
	vm := slices.IndexFunc(change.Ops, func(op log.Op) bool { return op.Action == log.Create && op.Kind == log.KindVM })
	if vm < 0 || !errors.As(err, &refusal) {
		return result, err
	}
	id := change.Ops[vm].Object.(*log.VM).UUID
	if placed, askErr := t.Placed(ctx, id); askErr != nil || !placed {
		return result, errors.Join(err, askErr)
	}
	_, takeErr := t.Servers.Submit(ctx, &log.Change{ID: t.NewID(), Ops: []log.Op{{
		Action: log.Update, Kind: log.KindVM, ID: id.String(), Set: []string{"server_uuid"}, Object: &log.VM{UUID: id, ServerUUID: t.CN},
	}}}, 0)
	if takeErr != nil {
		return result, err
	}
	t.await(ctx, change)
	return result, taken(change)
}

// taken is the refusal to make what a change makes because it is there already: the VM and
// its NICs came along.
func taken(change *log.Change) *log.Refusal {
	r := &log.Refusal{Code: log.CodeInvalidParameters, Message: "the VM and its NICs are there already"}
	for _, op := range change.Ops {
		id := ""
		switch o := op.Object.(type) {
		case *log.VM:
			id = o.UUID.String()
		case *log.NIC:
			id = o.MAC.String()
		}
		r.Errors = append(r.Errors, log.FieldError{Code: log.ElementDuplicate, Type: op.Kind.String(), ID: id})
	}
	return r
}

// await waits until this node's part of the log has the NICs of a change on this node.
func (t Taking) await(ctx context.Context, change *log.Change) {
	ctx, cancel := context.WithTimeout(ctx, seen)
	defer cancel()
	for {
		missing := false
		t.Node.View(func(state *projections.State) {
			for _, op := range change.Ops {
				if op.Kind != log.KindNIC {
					continue
				}
				r, ok := state.Get(log.KindNIC, op.Object.(*log.NIC).MAC.String())
				missing = missing || !ok || r.Object.(*log.NIC).CNUUID != t.CN
			}
		})
		if !missing || !wait(ctx, seenLook) {
			return
		}
	}
}
