package vmm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"rutter/log"
	"rutter/projections"
)

// Actors of a VMM's events.
const (
	actorWatcher = "rutter"
	actorCN      = "cn:" // and its UUID
)

// recordTries bounds how often a change is built again because the log had changed.
const recordTries = 5

// errStranger: the VMM's VM is unknown, so it cannot be recorded.
var errStranger = errors.New("vmm: the log does not know the VMM, and its compute node did not say of which VM it is")

// errNotPlaced: the VMM's VM is not on the compute node in the log, so that the log would
// refuse the VMM. It waits for the node's inventory (placed.go), and the node rings again.
var errNotPlaced = errors.New("vmm: the log does not have the VM of the VMM on its compute node")

// isOn reports whether the log has a VM on a CN.
func isOn(state *projections.State, cn, vm log.UUID) bool {
	rec, known := state.Get(log.KindVM, vm.String())
	return known && rec.Object.(*log.VM).ServerUUID == cn
}

// claim is a state of a VMM to record.
type claim struct {
	vmm   log.UUID
	cn    log.UUID // that reports it
	actor string
	state State
}

// record writes a state into the log: the VMM and its migrations in one change, each
// only if its generation is newer than the log's (else it is not an error). Every state
// is recorded here. It returns the seq from which the state, or a newer one, can be
// read.
func (s *Service) record(ctx context.Context, c claim) (seq log.Seq, applied bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	for range recordTries {
		change, at, made := s.changeOf(c)
		if made != nil {
			err = made
			break
		}
		if change == nil {
			s.metrics.recorded.WithLabelValues("old").Inc()
			return at, false, nil
		}
		var result log.Result
		if result, err = s.propose(ctx, change); err != nil {
			break
		}
		if result.Refusal == nil {
			if result.Events == 0 {
				s.metrics.recorded.WithLabelValues("old").Inc()
				return result.Last, false, nil
			}
			s.metrics.recorded.WithLabelValues("applied").Inc()
			return result.Last, true, nil
		}
		// This server was behind: the object exists, or is deleted.
		err = result.Refusal
		if _, behind := s.cfg.Store.Consistent(ctx); behind != nil {
			break
		}
	}
	result := "failed"
	if errors.Is(err, errNotPlaced) {
		result = "unplaced"
	}
	s.metrics.recorded.WithLabelValues(result).Inc()
	return 0, false, fmt.Errorf("vmm: record %s of VMM %s: %w", c.state.VMM.State, c.vmm, err)
}

// propose writes a change. All attempts have the same id, so it is applied once.
func (s *Service) propose(ctx context.Context, c *log.Change) (log.Result, error) {
	id, err := s.cfg.NewID()
	if err != nil {
		return log.Result{}, err
	}
	c.ID = id
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, againAfter) {
		copied := *c
		result, err := s.cfg.Store.Propose(ctx, &copied)
		if err == nil {
			return result, nil
		}
		select {
		case <-ctx.Done():
			return result, errors.Join(err, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

// changeOf makes the change of a claim for the log as it is here; nil if the claim has
// nothing newer.
func (s *Service) changeOf(c claim) (change *log.Change, at log.Seq, err error) {
	s.cfg.Store.View(func(state *projections.State, head log.Cursor) {
		at = head.Seq
		var ops []log.Op
		vm := c.state.InstanceID
		rec, known := state.Get(log.KindVMM, c.vmm.String())
		if known {
			held := rec.Object.(*log.VMM)
			vm = held.InstanceID
			if !c.cn.IsZero() && held.SledID != c.cn {
				err = fmt.Errorf("vmm: CN %s speaks of VMM %s, which is on CN %s", c.cn, c.vmm, held.SledID)
				return
			}
			if newer(held, &c.state.VMM) {
				ops = append(ops, updateVMM(c))
			}
		} else {
			if vm.IsZero() || c.cn.IsZero() {
				err = errStranger
				return
			}
			if s.cfg.Bound && state.Feature() >= log.FeatureConfined && !isOn(state, c.cn, vm) {
				err = errNotPlaced
				return
			}
			ops = append(ops, createVMM(c))
		}
		for _, side := range []struct {
			m   *Migration
			out bool
		}{{c.state.MigrationIn, false}, {c.state.MigrationOut, true}} {
			if side.m != nil {
				ops = appendMigration(ops, state, side.m, side.out, c.vmm, vm)
			}
		}
		if ops != nil {
			change = &log.Change{Actor: c.actor, Ops: ops}
			if strings.HasPrefix(c.actor, actorCN) {
				change.By = s.by(c.cn) // an operator's order and the watcher's finding have their own authors
			}
		}
	})
	return change, at, err
}

// newer is the rule of projections for updates of a VMM: an older one would have no
// effect.
func newer(held *log.VMM, r *Runtime) bool {
	return r.Gen > held.Gen || r.Gen == held.Gen && held.State == stateCreating
}

func updateVMM(c claim) log.Op {
	op := createVMM(c)
	op.Action, op.ID = log.Update, c.vmm.String()
	op.Set = []string{"gen", "reason", "state", "time_updated"}
	return op
}

func createVMM(c claim) log.Op {
	r := c.state.VMM
	return log.Op{
		Action: log.Create, Kind: log.KindVMM,
		Set: []string{"gen", "id", "instance_id", "reason", "sled_id", "state", "time_updated"},
		Object: &log.VMM{
			UUID: c.vmm, InstanceID: c.state.InstanceID, SledID: c.cn,
			State: r.State, Gen: r.Gen, Reason: r.Reason, TimeUpdated: log.TimeOf(r.Updated),
		},
	}
}

// appendMigration adds a CN's report of its side of a migration, if it is newer.
func appendMigration(ops []log.Op, state *projections.State, m *Migration, out bool, vmm, vm log.UUID) []log.Op {
	rec, known := state.Get(log.KindMigration, m.ID.String())
	held := new(log.Migration)
	if known {
		held = rec.Object.(*log.Migration)
	}
	said := &log.Migration{UUID: m.ID, InstanceID: vm}
	var set []string
	if out {
		if held.SourceGen >= m.Gen {
			return ops
		}
		said.SourceVMM, said.SourceState, said.SourceGen, said.SourceUpdated = vmm, m.State, m.Gen, log.TimeOf(m.Updated)
		set = []string{"source_gen", "source_propolis_id", "source_state", "time_source_updated"}
	} else {
		if held.TargetGen >= m.Gen {
			return ops
		}
		said.TargetVMM, said.TargetState, said.TargetGen, said.TargetUpdated = vmm, m.State, m.Gen, log.TimeOf(m.Updated)
		set = []string{"target_gen", "target_propolis_id", "target_state", "time_target_updated"}
	}
	if known {
		return append(ops, log.Op{Action: log.Update, Kind: log.KindMigration, ID: m.ID.String(), Set: set, Object: said})
	}
	return append(ops, log.Op{Action: log.Create, Kind: log.KindMigration, Set: append([]string{"id", "instance_id"}, set...), Object: said})
}

// fail records that a VMM failed whose CN cannot be asked. Its generation is the log's
// plus one, so that a report that is written meanwhile takes precedence
// (spec/vmm-doorbell.md §7.2). Errors: those of record.
func (s *Service) fail(ctx context.Context, held *log.VMM, reason string) error {
	if !onCN(held.State) {
		return nil
	}
	_, applied, err := s.record(ctx, claim{vmm: held.UUID, cn: held.SledID, actor: actorWatcher, state: State{
		VMM: Runtime{State: stateFailed, Gen: held.Gen + 1, Updated: time.Now(), Reason: reason},
	}})
	if applied {
		s.logger.Warn("a VMM failed", "vmm", held.UUID, "cn", held.SledID, "reason", reason)
	}
	return err
}

// toValid removes the incomplete character at the end of a cut text.
func toValid(text string) string { return strings.ToValidUTF8(text, "") }
