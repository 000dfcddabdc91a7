package vmapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"rutter/api/auth/webcheck"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/vmrule"
	"rutter/projections"
	"rutter/projections/designation"
)

const (
	maxBody = 1 << 20 // bytes of a request
	maxList = 1000    // VMs in one answer
	within  = 10 * time.Second
	// freshWithin is how long a read of one VM waits for what other servers acknowledged.
	freshWithin = time.Second
)

// Store is the log and its state, as this package needs them; see backend.Store.
type Store interface {
	Propose(ctx context.Context, c *log.Change) (log.Result, error)
	View(fn func(state *projections.State, head log.Cursor))
	// Changed is closed when more is applied than when it was called.
	Changed() <-chan struct{}
	WaitSeq(ctx context.Context, seq log.Seq) error
	Consistent(ctx context.Context) (log.Seq, error)
	// Ready is nil when this server can serve; it answers at once, for probes.
	Ready() error
	// AwaitReady is Ready for reads and writes: it may wait a while for a leader.
	AwaitReady(ctx context.Context) error
	Serving() error
}

// Config configures a Service. Store must be given.
type Config struct {
	Store Store
	// NewID makes change ids; default: UUIDs of version 7 by this machine's clock.
	NewID func() (log.UUID, error)
	// Actor returns the actor of a request's changes; default "vmapi".
	Actor func(*http.Request) string
	// Programs reports whether a client may choose what runs on compute nodes; nil: each
	// client may.
	Programs func(*http.Request) bool
	// Place chooses a server for a new VM; nil: POST /vms needs a server_uuid. An error is
	// an answer.
	Place func(r *http.Request, req *designation.Request) (*designation.Result, error)
	// SyncWaits bounds the answers to sync=true that this server owes at once; default
	// 1024.
	SyncWaits int
	// Changefeeds are the routes of the change feed, served beside VMAPI's; may be nil.
	Changefeeds []rest.Route
	// Gone returns the last event of a VM that the log does not have any more, or nil: it
	// never had it, or not for as long as entries are kept. Nil: nothing is known of those.
	Gone func(ctx context.Context, id log.UUID) (*log.Event, error)
	// Logger; nil discards.
	Logger *slog.Logger
}

// Service is VMAPI's surface.
type Service struct {
	cfg   Config
	waits syncWaits
}

// New returns a service, or what cfg lacks.
func New(cfg Config) (*Service, error) {
	if cfg.Store == nil {
		return nil, errors.New("vmapi: Config.Store is missing")
	}
	if cfg.NewID == nil {
		cfg.NewID = rest.NewChangeID
	}
	if cfg.Actor == nil {
		cfg.Actor = func(*http.Request) string { return "vmapi" }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{cfg: cfg}
	s.waits.most = int64(cmp.Or(cfg.SyncWaits, maxSyncWaits))
	return s, nil
}

func invalid(field, format string, args ...any) *rest.Error {
	p := rest.Fail(http.StatusConflict, vmrule.Code, "", "Invalid Parameters")
	p.Errors = []log.FieldError{{Field: field, Code: vmrule.ElementInvalid, Message: fmt.Sprintf(format, args...)}}
	return p
}

// missing is the refusal of a request without a parameter that it needs.
func missing(field, format string, args ...any) *rest.Error {
	p := invalid(field, format, args...)
	p.Errors[0].Code = codeMissing
	return p
}

// codeMissing is VMAPI's code of a parameter that is needed and not given.
const codeMissing = "MissingParameter"

// Table is everything that the surface serves. An error that is not a *rest.Error is a failure
// of this server.
func (s *Service) Table() *rest.Table {
	t := &rest.Table{
		Surface: "vmapi", Clients: webcheck.Triton,
		Routes: []rest.Route{
			{Method: "GET", Pattern: "/ping", Serve: s.ping},
			{Method: "HEAD", Pattern: "/ping", Serve: s.ping},
		},
		Wrap: func(pattern string, serve rest.Endpoint) http.Handler {
			if pattern == "/vms" {
				return rest.Bounded(maxPutBody, writeError)(pattern, serve)
			}
			return rest.Bounded(maxBody, writeError)(pattern, serve)
		},
		NoRoute: func(_ http.ResponseWriter, r *http.Request) error {
			return fail(http.StatusNotFound, log.CodeResourceNotFound, "%s %s does not exist", r.Method, r.URL.Path)
		},
	}
	add := func(method, pattern string, serve rest.Endpoint) {
		t.Routes = append(t.Routes, rest.Route{Method: method, Pattern: pattern, Serve: serve})
	}
	add("GET", "/statuses", s.statuses)
	add("GET", "/vms", s.list)
	add("HEAD", "/vms", s.list)
	add("POST", "/vms", s.create)
	add("PUT", "/vms", s.putVMs)
	add("GET", "/vms/{uuid}", s.get)
	add("HEAD", "/vms/{uuid}", s.get)
	add("POST", "/vms/{uuid}", s.action)
	add("PUT", "/vms/{uuid}", s.putVM)
	add("DELETE", "/vms/{uuid}", s.remove)
	add("GET", "/vms/{uuid}/proc", s.proc)
	add("GET", "/vms/{uuid}/jobs", s.listJobs)
	add("GET", "/jobs", s.listJobs)
	add("GET", "/jobs/{job}", s.getJob)
	add("POST", "/job_results", s.jobResults)
	for _, of := range metadata {
		add("GET", "/vms/{uuid}/"+of, s.getMembers(of))
		add("POST", "/vms/{uuid}/"+of, s.setMembers(of, false))
		add("PUT", "/vms/{uuid}/"+of, s.setMembers(of, true))
		add("DELETE", "/vms/{uuid}/"+of, s.removeMembers(of))
		add("GET", "/vms/{uuid}/"+of+"/{key}", s.getMember(of))
		add("DELETE", "/vms/{uuid}/"+of+"/{key}", s.removeMembers(of))
	}
	add("POST", "/vms/{uuid}/role_tags", s.setRoleTags(false))
	add("PUT", "/vms/{uuid}/role_tags", s.setRoleTags(true))
	add("DELETE", "/vms/{uuid}/role_tags", s.removeRoleTags)
	add("DELETE", "/vms/{uuid}/role_tags/{key}", s.removeRoleTags)
	t.Routes = append(t.Routes, s.cfg.Changefeeds...)
	return t
}

// Handler serves the endpoints, without a gate.
func (s *Service) Handler() http.Handler { return s.Table().Handler() }

func fail(status int, code, format string, args ...any) *rest.Error {
	return rest.Fail(status, code, "", format, args...)
}

// writeError answers with an error in VMAPI's form.
func writeError(w http.ResponseWriter, _ *http.Request, err error) {
	var p *rest.Error
	if !errors.As(err, &p) {
		p = fail(http.StatusServiceUnavailable, rest.CodeUnavailable, "%v", err)
	}
	rest.RetryAfter(w, http.StatusOK, p.Budget)
	rest.WriteEscaped(w, p.Status, p)
}

// ping is the probe.
func (s *Service) ping(w http.ResponseWriter, _ *http.Request) error {
	body, status := map[string]any{"status": "OK", "healthy": true}, http.StatusOK
	if err := errors.Join(s.cfg.Store.Ready(), s.cfg.Store.Serving()); err != nil {
		body, status = map[string]any{"status": "some services are not ready", "healthy": false, "initialization_error": err.Error()}, http.StatusServiceUnavailable
	}
	rest.WriteEscaped(w, status, body)
	return nil
}

// get answers GET /vms/UUID. It shows what any server acknowledged before the request, so
// that a listener of the change feed that reads the VM of an item finds it so, whichever
// server it asks. If that cannot be known soon, it shows what this server knows, unless
// the request has sync=true.
func (s *Service) get(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	var fields []string
	if text := query.Get("fields"); text != "" {
		if fields = strings.Split(text, ","); len(fields) > maxFields {
			return invalid("fields", "name at most %d fields", maxFields)
		}
	}
	if err := s.serves(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), freshWithin)
	defer cancel()
	if _, err := s.cfg.Store.Consistent(ctx); err != nil && query.Get("sync") == "true" {
		return fmt.Errorf("what the other servers know of the VM cannot be said now: %w", err)
	}
	_, p, err := s.find1(r)
	if err != nil {
		if p = s.goneOf(r, err); p == nil {
			return err
		}
	}
	rest.WriteEscaped(w, http.StatusOK, p.shown(fields))
	return nil
}

// statuses answers GET /statuses?uuids=UUID,UUID: the states by UUID, without those of VMs
// that do not exist.
func (s *Service) statuses(w http.ResponseWriter, r *http.Request) error {
	text := r.URL.Query().Get("uuids")
	if text == "" {
		return fail(http.StatusConflict, codeMissing, "uuids is required")
	}
	l := &listing{}
	if message := l.ids("uuids", text); message != "" {
		return invalid("uuids", "%s", message)
	}
	if err := s.serves(); err != nil {
		return err
	}
	states := map[string]string{}
	for ids := range slices.Chunk(l.uuids, sliceVMs) {
		for _, one := range s.named(ids) {
			states[one.vm.UUID.String()] = one.values("state")[0]
		}
	}
	rest.WriteEscaped(w, http.StatusOK, states)
	return nil
}

// catchUpFor returns when this server has what any server has acknowledged, if it knows no
// such VM: it may have been made through another one a moment ago.
func (s *Service) catchUpFor(ctx context.Context, id log.UUID) error {
	known := false
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) { _, known = state.Get(log.KindVM, id.String()) })
	if known {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if _, err := s.cfg.Store.Consistent(ctx); err != nil {
		return fmt.Errorf("whether VM %s exists cannot be said now: %w", id, err)
	}
	return nil
}

func vmID(r *http.Request) (log.UUID, error) {
	id, err := log.ParseUUID(r.PathValue("uuid"))
	if err != nil {
		return id, invalid("uuid", "Invalid UUID")
	}
	return id, nil
}

func notFound() error {
	return fail(http.StatusNotFound, log.CodeResourceNotFound, "VM not found")
}

// change answers an update of a VM, of its NICs or of both.
func (s *Service) change(w http.ResponseWriter, r *http.Request, id log.UUID, body []byte, sync bool) (err error) {
	action := r.URL.Query().Get("action")
	if action != "" && action != "update" && action != "update_nics" {
		return invalid("action", "'%s' is not served here: send update or update_nics", action)
	}
	var change *log.Change
	if err = s.catchUpFor(r.Context(), id); err != nil {
		return err
	}
	var vm *log.VM
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) { vm, change, err = changeOf(state, id, action, body) })
	if err != nil {
		return err
	}
	if names := programs(id, body); len(names) > 0 && s.cfg.Programs != nil && !s.cfg.Programs(r) {
		return mayNotChoose(names)
	}
	answered := map[string]any{"vm_uuid": id}
	if n := len(change.Ops); n > 0 && change.Ops[n-1].Kind == log.KindTask {
		// A task that nothing takes would be a job that runs until its deadline.
		if err := s.needAgent(vm, "this update"); err != nil {
			return err
		}
	}
	if len(change.Ops) > 0 {
		if change.ID, err = s.cfg.NewID(); err != nil {
			return err
		}
		change.Actor = s.cfg.Actor(r)
		result, err := s.write(r.Context(), change)
		if err != nil {
			return err
		}
		answered["job_uuid"] = change.ID
		if n := len(change.Ops) - 1; change.Ops[n].Kind == log.KindTask {
			return s.answerTask(w, r, sync, id, result, n)
		}
	}
	rest.WriteEscaped(w, http.StatusAccepted, answered)
	return nil
}

// mayNotChoose refuses fields that choose what runs on a compute node.
func mayNotChoose(names []string) error {
	return fail(http.StatusForbidden, log.CodeNotAuthorized, "%s: what runs on a compute node is not chosen with write access: leave it out, use the certificate of an operator, or let this address in with --triton-allow CIDR=programs", strings.Join(names, ", "))
}

// ofUpdate are fields of an update that are the request's, and not the VM's.
var ofUpdate = []string{"action", "context", "creator_uuid", "idempotent", "origin", "sync"}

// programs are the fields of an update that choose what runs on the compute node.
func programs(id log.UUID, body []byte) []string {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(body, &fields) // changeOf refuses what is no object
	return vmrule.Programs(id.String(), fields)
}

// changeOf makes the change of an update of a VM, or returns what is wrong with it.
func changeOf(state *projections.State, id log.UUID, action string, body []byte) (*log.VM, *log.Change, error) {
	rec, ok := state.Get(log.KindVM, id.String())
	if !ok {
		return nil, nil, notFound()
	}
	vm := rec.Object.(*log.VM)
	c, err := updateOf(state, vm, action, body)
	return vm, c, err
}

func updateOf(state *projections.State, vm *log.VM, action string, body []byte) (*log.Change, error) {
	u, err := vmrule.Check(body, RuleOf(state, vm.UUID))
	var refusal *log.Refusal
	if errors.As(err, &refusal) {
		return nil, &rest.Error{Status: vmrule.Status, Code: refusal.Code, Message: refusal.Message, Errors: refusal.Errors}
	}
	if err != nil {
		return nil, err
	}
	for _, name := range ofUpdate {
		delete(u.Rest, name)
	}
	if vm.State == "provisioning" {
		return nil, unallocated()
	}
	if vm.State == destroyed {
		return nil, isDestroyed()
	}
	if action == "update_nics" && len(u.Rest) > 0 {
		p := invalid("nics", "send the NICs only")
		p.Errors = p.Errors[:0]
		for _, name := range names(u.Rest) {
			p.Errors = append(p.Errors, log.FieldError{Field: name, Code: vmrule.ElementInvalid, Message: fmt.Sprintf("'%s' is not a valid property to update", name)})
		}
		return nil, p
	}
	c := &log.Change{Ops: Ops(u)}
	if len(u.Rest) > 0 && vm.ServerUUID.IsZero() {
		return nil, unallocated()
	}
	task, err := Task(vm, u, u.Rest)
	if err != nil {
		return nil, err
	}
	c.Ops = append(c.Ops, task...)
	return c, nil
}

// Task returns the operation that sends fields which only the VM's compute node can
// change to that node, or none: rest, and the fields of u that the node reports to the
// log.
func Task(vm *log.VM, u vmrule.Update, rest map[string]json.RawMessage) ([]log.Op, error) {
	params := maps.Clone(rest)
	if params == nil {
		params = make(map[string]json.RawMessage)
	}
	var nics []map[string]json.RawMessage
	for i := range u.NICs {
		if fields := maps.Clone(u.NICs[i].Manifest); len(fields) > 0 {
			fields["mac"] = json.RawMessage(strconv.Quote(u.NICs[i].MAC.String()))
			nics = append(nics, fields)
		}
	}
	if len(params)+len(nics) == 0 || vm.ServerUUID.IsZero() {
		return nil, nil
	}
	if len(nics) > 0 {
		list, err := json.Marshal(nics)
		if err != nil {
			return nil, err
		}
		params["update_nics"] = list
	}
	params["uuid"] = json.RawMessage(strconv.Quote(vm.UUID.String()))
	text, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	return []log.Op{{
		Action: log.Create, Kind: log.KindTask, Set: []string{"params", "server_uuid", "task"},
		Object: &log.Task{Task: "machine_update", ServerUUID: vm.ServerUUID, Params: string(text)},
	}}, nil
}

// The refusal to update a VM that is not made yet, HTTP 409 (spec/vmapi-rule.md).
const (
	CodeUnallocated    = "UnallocatedVM"
	MessageUnallocated = "VM has not been allocated to a server yet, or is being provisioned"
)

func unallocated() error { return fail(http.StatusConflict, CodeUnallocated, MessageUnallocated) }

// isDestroyed refuses a change of a VM that is destroyed.
func isDestroyed() error {
	return fail(http.StatusConflict, "ValidationFailed", "the VM is destroyed: nothing of it can be changed")
}

// Ops are the operations of an update on the log: those of the NICs' own updates.
func Ops(u vmrule.Update) (ops []log.Op) {
	for i := range u.NICs {
		if nic := &u.NICs[i]; len(nic.Set) > 0 {
			ops = append(ops, log.Op{Action: log.Update, Kind: log.KindNIC, ID: nic.MAC.String(), Set: nic.Set, Object: &nic.Fields})
		}
	}
	return ops
}

// write writes a change, and waits until this server has applied it.
func (s *Service) write(ctx context.Context, c *log.Change) (log.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	result, err := s.propose(ctx, c)
	if err != nil {
		return result, err
	}
	if result.Refusal != nil {
		p := &rest.Error{Status: http.StatusConflict, Code: vmrule.Code, Message: result.Refusal.Message, Errors: result.Refusal.Errors}
		switch result.Refusal.Code {
		case log.CodeResourceNotFound:
			p.Status, p.Code = http.StatusNotFound, result.Refusal.Code
		case log.CodePreconditionFailed:
			p.Status, p.Code = http.StatusPreconditionFailed, result.Refusal.Code
		case log.CodeUndecided:
			p.Status, p.Code = http.StatusInternalServerError, result.Refusal.Code
		}
		return result, p
	}
	return result, s.cfg.Store.WaitSeq(ctx, result.Last)
}

// propose writes a change. A refusal stands in the result.
func (s *Service) propose(ctx context.Context, c *log.Change) (log.Result, error) {
	result, err := s.cfg.Store.Propose(ctx, c)
	if exceeded := rest.ExceededOf(err); exceeded != nil {
		p := fail(http.StatusTooManyRequests, rest.CodeBudget, "nothing was written: %v", exceeded)
		p.Budget = exceeded
		return result, p
	}
	if errors.Is(err, log.ErrNoRoom) {
		return result, fail(http.StatusInsufficientStorage, log.CodeNoRoom, "nothing was written: %v", err)
	}
	if err != nil {
		return result, fmt.Errorf("vmapi: it is not known whether change %s was made, look for it: %w", c.ID, err)
	}
	return result, nil
}

// submit is propose of operations for a request.
func (s *Service) submit(ctx context.Context, r *http.Request, ops ...log.Op) (log.Result, error) {
	id, err := s.cfg.NewID()
	if err != nil {
		return log.Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return s.propose(ctx, &log.Change{ID: id, Actor: s.cfg.Actor(r), Ops: ops})
}

// writeOps is write of operations for a request.
func (s *Service) writeOps(ctx context.Context, r *http.Request, ops ...log.Op) (log.Result, error) {
	id, err := s.cfg.NewID()
	if err != nil {
		return log.Result{}, err
	}
	return s.write(ctx, &log.Change{ID: id, Actor: s.cfg.Actor(r), Ops: ops})
}
