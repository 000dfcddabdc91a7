package netsync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmrun"
	"rutter/log"
	"rutter/log/report"
	"rutter/projections"
)

// Log is this node's part of the log; *agent.Agent has it.
type Log interface {
	// Part calls fn with the state, with its cluster, the last bookmark, and whether
	// all that this node must know was held at least once. Nothing is applied during
	// the call. fn must not keep the state.
	Part(fn func(state *projections.State, cluster log.UUID, seq log.Seq, complete bool))
}

// Node has the VMs of this compute node. Its methods are called from one goroutine.
type Node interface {
	// VMs returns them, by UUID, and what says of another VM whether it is known to be gone:
	// one that is neither may still exist.
	VMs() (vms []VM, gone func(vm log.UUID) bool)
	// Edit writes a VM's manifest again, unless the VM is gone. change may be called
	// more than once.
	Edit(id log.UUID, change func(vmdoc.Value) vmdoc.Value) error
	// Reboot requests a reboot of a running VM, and does not wait for it.
	Reboot(id log.UUID) error
}

// Servers sends HTTP requests to servers; *client.Client of package api/client does.
type Servers interface {
	Raw(ctx context.Context, method, path string, body []byte) (json.RawMessage, error)
}

// Config configures a Syncer. All fields except Logger and Every must be given.
type Config struct {
	// CN is the compute node.
	CN log.UUID
	// Folder has the ledger's file.
	Folder string
	// Incarnation is that of the agent: higher than all before.
	Incarnation uint64
	Log         Log
	Node        Node
	Servers     Servers
	// Host returns the node's own part; nil: it is not compared.
	Host func() Host
	// NewID makes ids of changes: UUIDs of version 7.
	NewID func() log.UUID
	// Every is how often everything is compared without a known change. Default 1 min.
	Every time.Duration
	// Logger; nil discards.
	Logger *slog.Logger
}

// failedPause is the pause after a report without an answer.
const failedPause = 500 * time.Millisecond

// maxNotes bounds the notes of a status.
const maxNotes = 16

// Status is a Syncer's status.
type Status struct {
	Passes  uint64   `json:"passes"`
	Reports uint64   `json:"reports"`
	Changes uint64   `json:"changes"` // sent to servers
	Edits   uint64   `json:"edits"`   // of manifests
	Removed uint64   `json:"removed"` // NICs, from VMs
	Held    int      `json:"held"`    // NICs that the log had when it was last read
	Failure string   `json:"error,omitempty"`
	Notes   []string `json:"notes,omitempty"` // differences that stay, and why
	Settled bool     `json:"settled"`         // the last pass found nothing to do
}

// Syncer keeps the NICs of a node's VMs in step with the log.
type Syncer struct {
	cfg   Config
	core  *core
	now   func() time.Time
	woken chan struct{} // holds a token when a comparison is due

	counter uint64 // of reports; only Run

	mu     sync.Mutex // protects status
	status Status
}

// New reads the ledger, and starts nothing.
func New(cfg Config) (*Syncer, error) {
	if cfg.CN.IsZero() || cfg.Log == nil || cfg.Node == nil || cfg.Servers == nil || cfg.NewID == nil || cfg.Incarnation == 0 {
		return nil, errors.New("netsync: it needs its compute node, incarnation, log, VMs, servers and ids")
	}
	if cfg.Every == 0 {
		cfg.Every = time.Minute
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	b, err := loadLedger(cfg.Folder)
	if err != nil {
		return nil, err
	}
	return &Syncer{cfg: cfg, core: newCore(cfg.CN, b, cfg.NewID), now: time.Now, woken: make(chan struct{}, 1)}, nil
}

// Wake requests a comparison. It returns at once.
func (s *Syncer) Wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

// Status returns the status. It may be called from any goroutine.
func (s *Syncer) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Run compares until ctx ends, and returns nil then.
func (s *Syncer) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.woken:
		case <-timer.C:
		}
		timer.Reset(s.pass(ctx))
	}
}

// pass makes one pass, does the work that it found, and returns when the next is due.
func (s *Syncer) pass(ctx context.Context) time.Duration {
	in := input{now: s.now()}
	in.vms, in.gone = s.cfg.Node.VMs()
	if s.cfg.Host != nil {
		in.host = s.cfg.Host()
	}
	var p plan
	s.cfg.Log.Part(func(state *projections.State, cluster log.UUID, seq log.Seq, complete bool) {
		in.state, in.place = state, Part{Cluster: cluster, Seq: seq, Complete: complete}
		p = s.core.pass(in)
	})
	next, err := s.do(ctx, &p)
	if ctx.Err() == nil && err != nil {
		s.cfg.Logger.Warn("NICs do not match the log yet: trying again soon", "error", err)
	}
	s.note(&p, err)
	if !p.again.IsZero() {
		next = min(next, max(0, p.again.Sub(in.now)))
	}
	return next
}

// do does the work of a pass. What a report or an edit relies on is on disk before it.
func (s *Syncer) do(ctx context.Context, p *plan) (next time.Duration, err error) {
	for i := range p.edits {
		if p.edits[i].reboot {
			s.core.ledger.reboot(p.edits[i].vm, true)
		}
	}
	if err := s.core.ledger.save(s.cfg.Folder); err != nil {
		return failedPause, err
	}
	next = s.cfg.Every
	var failed error
	for i := range p.edits {
		if err := s.edit(&p.edits[i]); err != nil {
			failed, next = errors.Join(failed, err), failedPause
		}
	}
	if err := s.reboots(); err != nil {
		failed, next = errors.Join(failed, err), failedPause
	}
	if !p.asks() {
		return next, errors.Join(failed, s.core.ledger.save(s.cfg.Folder))
	}
	if err := s.send(ctx, p); err != nil {
		return failedPause, errors.Join(failed, err)
	}
	return 0, failed // the answer is compared at once
}

func (s *Syncer) edit(e *edit) error {
	err := s.cfg.Node.Edit(e.vm, e.apply)
	if errors.Is(err, vmrun.ErrNoVM) {
		s.core.ledger.reboot(e.vm, false)
		return nil
	}
	if err != nil {
		return fmt.Errorf("netsync: VM %s: %w", e.vm, err)
	}
	s.cfg.Logger.Info("a VM's manifest follows the log", "vm", e.vm, "nics", len(e.nics), "removed", e.remove, "fields", len(e.fields))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Edits++
	s.status.Removed += uint64(len(e.remove))
	return nil
}

// reboots requests reboots of VMs that lost a NIC.
func (s *Syncer) reboots() (failed error) {
	for vm := range s.core.ledger.reboots {
		if err := s.cfg.Node.Reboot(vm); err != nil {
			failed = errors.Join(failed, fmt.Errorf("netsync: reboot of VM %s, which lost a NIC: %w", vm, err))
			continue
		}
		s.cfg.Logger.Info("a VM that lost a NIC is rebooted", "vm", vm)
		s.core.ledger.reboot(vm, false)
	}
	return failed
}

// send sends the report, and handles the answer.
func (s *Syncer) send(ctx context.Context, p *plan) error {
	s.counter++
	m := report.Report{Incarnation: s.cfg.Incarnation, Counter: s.counter, Look: p.look, Networks: p.networks, Aggregations: p.aggregations}
	for i := range p.changes {
		m.Changes = append(m.Changes, report.Change{Change: p.changes[i].Change})
	}
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("netsync: report: %w", err)
	}
	text, err := s.cfg.Servers.Raw(ctx, http.MethodPost, "/reports/"+s.cfg.CN.String(), body)
	if err != nil {
		return fmt.Errorf("netsync: report: %w", err)
	}
	var a report.Answer
	if err := json.Unmarshal(text, &a); err != nil {
		return fmt.Errorf("netsync: answer: %w", err)
	}
	if a.Stale {
		if a.Incarnation == s.cfg.Incarnation {
			s.counter = max(s.counter, a.Counter)
		}
		return fmt.Errorf("netsync: a server knows a newer report of this node (incarnation %d, number %d): does another agent run for it?", a.Incarnation, a.Counter)
	}
	if a.Cluster != s.core.ledger.cluster {
		return fmt.Errorf("netsync: the server that answered is of cluster %s, not of %s", a.Cluster, s.core.ledger.cluster)
	}
	s.core.answered(p, &a)
	s.mu.Lock()
	s.status.Reports++
	s.status.Changes += uint64(len(p.changes))
	s.mu.Unlock()
	return s.core.ledger.save(s.cfg.Folder)
}

func (s *Syncer) note(p *plan, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Passes++
	s.status.Settled = err == nil && !p.asks() && len(p.edits) == 0
	s.status.Notes = p.notes[:min(len(p.notes), maxNotes)]
	s.status.Failure = ""
	if err != nil {
		s.status.Failure = err.Error()
	}
	held := 0
	for _, c := range s.core.ledger.claims {
		if c.Held {
			held++
		}
	}
	s.status.Held = held
}
