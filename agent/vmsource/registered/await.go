package registered

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rutter/log"
)

// Pauses between two looks at this node's part of the log and its kernel.
const (
	lookMin = 5 * time.Millisecond
	lookMax = 200 * time.Millisecond
)

// await waits as a PUT asks, and returns the VM.
func (s *Source) await(ctx context.Context, id log.UUID, until string) (VM, error) {
	enough := time.Now().Add(viewWithin)
	for pause := lookMin; ; pause = min(2*pause, lookMax) {
		r := s.recordOf(id)
		if r == nil || r.Leaving {
			return VM{}, failed(CodeOther, "VM %s: %v", id, errDeleted)
		}
		vm := s.answer(r)
		_, _, idle := s.cfg.Node.Waits(id)
		seen, there := true, true
		for i := range vm.NICs {
			n := &vm.NICs[i]
			seen = seen && (n.MTU > 0 || n.State == NICAttached)
			there = there && (n.State == NICAttached || idle[n.MAC])
		}
		switch {
		case until == WaitNode && there, until != WaitNode && until != WaitFabric && (seen || time.Now().After(enough)):
			return vm, nil
		case until == WaitFabric && there:
			return s.awaitFabric(ctx, id)
		}
		select {
		case <-ctx.Done():
			return vm, late(&vm, idle)
		case <-time.After(pause):
		}
	}
}

// late is the error of a VM whose NICs are not there in time.
func late(vm *VM, idle map[log.MAC]bool) *Error {
	e := failed(CodeWaiting, "VM %s is registered, and not there in time", vm.UUID)
	for i := range vm.NICs {
		if n := &vm.NICs[i]; n.State == NICWaiting && !idle[n.MAC] {
			e.Message += fmt.Sprintf("; %s: %s", n.Key, n.Reason)
		}
	}
	e.Message += "; repeat it to wait on"
	e.VM = vm
	return e
}

// awaitFabric waits until the kernels of all nodes that the NICs of a VM concern have them,
// unless they had them once.
func (s *Source) awaitFabric(ctx context.Context, id log.UUID) (VM, error) {
	r := s.recordOf(id)
	if r == nil {
		return VM{}, failed(CodeOther, "VM %s: %v", id, errDeleted)
	}
	for i := range r.NICs {
		n := &r.NICs[i]
		if n.Fabric || n.Leaving {
			continue
		}
		deadline, _ := ctx.Deadline()
		err := s.awaitChange(ctx, r, n, time.Until(deadline))
		if err != nil {
			vm := s.answer(r)
			e := failed(CodeWaiting, "VM %s is registered, and nodes that must know its NIC %s do not have it in time: %v; repeat it to wait on", id, n.Key, err)
			e.VM = &vm
			return vm, e
		}
		s.edit(id, func(r *record) {
			for j := range r.NICs {
				r.NICs[j].Fabric = r.NICs[j].Fabric || r.NICs[j].MAC == n.MAC
			}
		})
	}
	return s.answer(s.orElse(id, r)), nil
}

// orElse is the present record of a VM, or else r.
func (s *Source) orElse(id log.UUID, r *record) *record {
	if now := s.recordOf(id); now != nil {
		return now
	}
	return r
}

// awaitChange waits for all kernels that a NIC concerns: by the change that made it, which
// is done once, or by one that says its state again.
func (s *Source) awaitChange(ctx context.Context, r *record, n *nicRecord, left time.Duration) error {
	if !n.Change.IsZero() {
		_, err := s.cfg.Servers.Submit(ctx, s.creation(r, n.Change), left)
		var refusal *log.Refusal
		if !errors.As(err, &refusal) {
			return err
		}
	}
	_, err := s.cfg.Servers.Submit(ctx, &log.Change{ID: s.cfg.NewID(), Ops: []log.Op{{
		Action: log.Update, Kind: log.KindNIC, ID: n.MAC.String(), Set: []string{"state"}, Object: &log.NIC{MAC: n.MAC, State: r.State},
	}}}, left)
	return err
}
