package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/vmobject"
	"rutter/projections"
)

// States of VMs that decide something here.
const (
	stateProvisioning = "provisioning"
	stateFailed       = "failed"
	stateDestroyed    = "destroyed"
)

// source is who says what a VM is like.
type source uint8

const (
	fromVMAPI source = iota // its own record, by its feed, an answer, or a sweep
	fromNode                // a vm-agent or a job, by PUT
)

// tries is how often a VM is read again because the log's changed meanwhile.
const tries = 4

// agentKey is how the sysinfo of a node with Rutter's agent has the agent's version: it
// is canonical JSON in the log.
const agentKey = `"Rutter Agent":"`

// hasAgent reports whether a compute node has Rutter's agent, by its own report.
func hasAgent(state *projections.State, cn log.UUID) bool {
	rec, ok := state.Get(log.KindServer, cn.String())
	if !ok {
		return false
	}
	_, after, has := strings.Cut(rec.Object.(*log.Server).Sysinfo, agentKey)
	return has && !strings.HasPrefix(after, `"`)
}

// said is what a node or the old VMAPI said of a VM.
type said struct {
	vm  *log.VM
	set []string
	// tags are its role tags, if they were said at all (tagged).
	tags   []any
	tagged bool
	// asOf is where the log was when the old VMAPI was asked: what the log has of the VM
	// since then is newer.
	asOf log.Seq
}

// errPassed: the log's VM changed while the old VMAPI was asked.
var errPassed = errors.New("it changed while it was read")

// take reads a VM in VMAPI's form.
func (g *Gateway) take(object []byte) (*said, error) {
	parsed, err := vmobject.Parse(object)
	if err != nil {
		return nil, err
	}
	s := &said{}
	if s.vm, s.set, err = vmobject.TakeObject(parsed); err != nil {
		return nil, err
	}
	s.tags, s.tagged = parsed[vmobject.RoleTags].([]any)
	text, left, err := vmobject.Bound(vmobject.Properties(s.vm), log.MaxProperties)
	if err != nil {
		return nil, err
	}
	if len(left) > 0 {
		g.logger.Warn("a VM of "+g.name()+" is too large for the log: parts of it are left out", "vm", s.vm.UUID, "limit", log.MaxProperties, "left out", left)
		s.vm.Properties = text
	}
	return s, nil
}

// intake makes the log have what is said of a VM, as far as it is newer than what the
// log has and not for the VM's node to say. nil: the log has it, or knows better.
func (g *Gateway) intake(ctx context.Context, one *said, from source) error {
	var err error
	for try := range tries {
		rest.CatchUp(ctx, try)
		var op *log.Op
		var elsewhere *log.VM
		g.store.View(func(state *projections.State, _ log.Cursor) {
			op, err = intakeOp(state, one, from)
			if rec, ok := state.Get(log.KindVM, one.vm.ID()); ok && movesAgents(state, rec.Object.(*log.VM), one.vm) {
				elsewhere = rec.Object.(*log.VM)
			}
		})
		if elsewhere != nil {
			g.logger.Warn("a VM is said to be on another compute node than the log has it on, and one of the two has Rutter's agent: it is not moved", "vm", one.vm.UUID, "said", one.vm.ServerUUID, "log", elsewhere.ServerUUID)
		}
		if err == nil && op == nil {
			g.cfg.Metrics.taken.WithLabelValues(g.cfg.Surface, "kept").Inc()
			return nil
		}
		if err == nil {
			err = g.propose(ctx, *op)
		}
		if err == nil {
			g.cfg.Metrics.taken.WithLabelValues(g.cfg.Surface, "written").Inc()
			return nil
		}
		if errors.Is(err, errPassed) {
			return err
		}
		var refusal *log.Refusal
		if !errors.As(err, &refusal) || refusal.Code != log.CodePreconditionFailed && refusal.Code != log.CodeInvalidParameters && refusal.Code != log.CodeResourceNotFound {
			break
		}
	}
	g.cfg.Metrics.taken.WithLabelValues(g.cfg.Surface, "failed").Inc()
	return fmt.Errorf("VM %s is not in the log as it was said to be: %w", one.vm.UUID, err)
}

// propose makes one change. A refusal is an error.
func (g *Gateway) propose(ctx context.Context, ops ...log.Op) error {
	id, err := g.cfg.NewID()
	if err != nil {
		return err
	}
	result, err := g.store.Propose(ctx, &log.Change{ID: id, Actor: "gateway@" + g.cfg.Self, Ops: ops})
	if err != nil {
		return err
	}
	if result.Refusal != nil {
		return result.Refusal
	}
	return g.store.WaitSeq(ctx, result.Last)
}

// intakeOp returns the operation that makes the log have what is said, or nil.
func intakeOp(state *projections.State, one *said, from source) (*log.Op, error) {
	vm := one.vm
	rec, ok := state.Get(log.KindVM, vm.ID())
	keeps := state.Feature() >= log.FeatureTriton // properties
	if !ok {
		// A VM that a node with Rutter's agent does not have is gone, whatever an old
		// record says, unless it is not made yet.
		if vm.State == stateDestroyed || vm.OwnerUUID.IsZero() || vm.State != stateProvisioning && hasAgent(state, vm.ServerUUID) {
			return nil, nil
		}
		made := log.Clone(vm).(*log.VM)
		set := append(slices.Clone(one.set), "uuid")
		if !keeps || made.Properties == "" {
			made.Properties = ""
			set = without(set, "properties")
		}
		slices.Sort(set)
		return &log.Op{Action: log.Create, Kind: log.KindVM, Set: slices.Compact(set), Object: made}, nil
	}
	if from == fromVMAPI && rec.Seq > one.asOf {
		return nil, errPassed
	}
	known := rec.Object.(*log.VM)
	after, set, err := after(known, one, from, hasAgent(state, known.ServerUUID), movesAgents(state, known, vm))
	if err != nil {
		return nil, err
	}
	if !keeps {
		set = without(set, "properties")
	}
	if len(set) == 0 {
		return nil, nil
	}
	// The time is the VM's, not that of this change.
	set = append(without(set, "last_modified"), "last_modified")
	slices.Sort(set)
	return &log.Op{Action: log.Update, Kind: log.KindVM, ID: known.ID(), IfMatch: rec.Revision, IfSeq: rec.Seq, Object: after, Set: set}, nil
}

// movesAgents reports whether a VM is said to be on another node than the log has it on,
// and one of the two has Rutter's agent. Which VMs such a node has, its agent says, and no
// record of an old VMAPI, which may be stale; no migration goes to or from it. A VM that
// is being made may get such a node, as its first.
func movesAgents(state *projections.State, known, vm *log.VM) bool {
	switch {
	case vm.ServerUUID.IsZero() || vm.ServerUUID == known.ServerUUID:
		return false
	case hasAgent(state, known.ServerUUID):
		return true
	}
	return hasAgent(state, vm.ServerUUID) && (!known.ServerUUID.IsZero() || known.State != stateProvisioning)
}

// after returns a VM as it is after what was said, and the names of the fields that
// differ. agent: its node has Rutter's agent, whose reports are newer than any PUT. moves:
// see movesAgents.
func after(known *log.VM, one *said, from source, agent, moves bool) (*log.VM, []string, error) {
	vm := one.vm
	// A node without Rutter's agent says by PUT what is: VMAPI keeps the last one.
	newer := !agent && (from == fromNode || vm.LastModified >= known.LastModified)
	unmade := known.State == stateProvisioning
	switch {
	case from == fromNode && !known.ServerUUID.IsZero() && vm.ServerUUID != known.ServerUUID:
		return known, nil, nil // where a VM is, updateVmServerUuid says
	case moves: // it is of another VM than the agent's, or of another time
		return part(known, one)
	case from == fromVMAPI && vm.State == stateFailed && unmade:
		return part(known, one, "state", "zone_state", "server_uuid")
	case vm.State == stateDestroyed && agent: // it is for the node's agent to say
		return part(known, one)
	case vm.State == stateProvisioning && !unmade:
		return part(known, one) // a record from before the node's first report
	case !newer && !unmade:
		if from == fromVMAPI {
			return part(known, one, "server_uuid") // neither node has Rutter's agent
		}
		return known, nil, nil
	}
	next, set, err := vmobject.Replace(known, vm, one.set)
	if err != nil || !one.tagged {
		return next, set, err
	}
	if err := setTags(next, one.tags); err != nil {
		return nil, nil, err
	}
	if set = without(set, "properties"); next.Properties != known.Properties {
		set = append(set, "properties")
	}
	slices.Sort(set)
	return next, set, nil
}

// part is after with some fields and the role tags only, which are VMAPI's own.
func part(known *log.VM, one *said, names ...string) (*log.VM, []string, error) {
	next := log.Clone(known).(*log.VM)
	for _, name := range names {
		if !slices.Contains(one.set, name) || name == "server_uuid" && one.vm.ServerUUID.IsZero() {
			continue
		}
		log.Assign(next, one.vm, []string{name})
	}
	if one.tagged {
		if err := setTags(next, one.tags); err != nil {
			return nil, nil, err
		}
	}
	var set []string
	for _, name := range append([]string{"properties"}, names...) {
		a, _ := log.Field(known, name)
		b, _ := log.Field(next, name)
		if a != b {
			set = append(set, name)
		}
	}
	slices.Sort(set)
	return next, set, nil
}

// setTags sets the role tags of a VM.
func setTags(vm *log.VM, tags []any) (err error) {
	properties := vmobject.Properties(vm)
	delete(properties, vmobject.RoleTags)
	if len(tags) > 0 {
		properties[vmobject.RoleTags] = tags
	}
	vm.Properties, err = vmobject.Text(properties)
	return err
}

func without(set []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(set), func(n string) bool { return n == name })
}
