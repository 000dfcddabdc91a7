package vmapi

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"rutter/api/internal/rest"
	"rutter/api/triton/internal/provision"
	"rutter/log"
	"rutter/log/vmobject"
	"rutter/log/vmrule"
	"rutter/projections"
	"rutter/projections/designation"
)

// The ticket under which a server is chosen for a VM, as VMAPI has it: so that no two VMs
// get the same room, whichever servers are asked. It is released in one change with what is
// made; a request that dies with its server leaves it for ticketTime.
const (
	ticketScope  = "vm-allocate"
	ticketID     = "global"
	ticketAction = "allocate"
	ticketTime   = time.Minute
)

// create answers POST /vms: the VM, its NICs and the task that makes it on a compute node
// are written in one change, and freed if the task fails (package provision).
func (s *Service) create(w http.ResponseWriter, r *http.Request) error {
	body, err := s.writeBody(r)
	if err != nil {
		return err
	}
	m, err := readMachine(&s.waits, r, body)
	if err != nil {
		return err
	}
	if err := s.consistent(r.Context(), "whether the VM can be made"); err != nil {
		return err
	}
	if err := s.fitMachine(r, m); err != nil {
		return err
	}
	if !m.vm.ServerUUID.IsZero() {
		return s.make(w, r, m)
	}
	if s.cfg.Place == nil {
		return notHere("the choice of a compute node: send server_uuid; this")
	}
	if m.servers(s.cfg.Store) == 0 {
		return noServers()
	}
	return s.inLine(r, func(ticket log.UUID) error {
		result, err := s.cfg.Place(r, m.placement)
		if err != nil {
			return err
		}
		switch {
		case result.Server != nil:
		case result.ForVolumes:
			return fail(http.StatusConflict, "VolumeServerNoResourcesError", "No compute resources available on the host containing the mounted volume")
		default:
			return noServers()
		}
		m.vm.ServerUUID, m.ticket = result.Server.UUID, ticket
		return s.make(w, r, m)
	})
}

// noServers is CNAPI's refusal of a placement, which VMAPI passes on.
func noServers() error {
	return fail(http.StatusConflict, "NoAllocatableServersError", "No compute resources available")
}

// agentKey is in the sysinfo of a node with Rutter's agent: the log has it as canonical JSON.
const agentKey = `"Rutter Agent":"`

// servers names the compute nodes on which a VM may be placed: those with an agent that
// takes tasks of the log. It returns how many there are.
func (m *machine) servers(store Store) int {
	m.placement.Servers = nil
	store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.List(log.KindServer) {
			if o := rec.Object.(*log.Server); strings.Contains(o.Sysinfo, agentKey) && len(m.placement.Servers) < designation.MaxServers {
				m.placement.Servers = append(m.placement.Servers, o.UUID)
			}
		}
	})
	return len(m.placement.Servers)
}

// fitMachine holds a new VM against the log: its UUID, its alias, its networks' names, its
// compute node, and what the client may choose of it.
func (s *Service) fitMachine(r *http.Request, m *machine) error {
	var wrong problems
	if m.vm.Alias != "" && s.hasAlias(m.vm) {
		wrong = append(wrong, log.FieldError{Field: "alias", Code: log.ElementDuplicate, Message: "Already exists"})
	}
	agent := true
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		if _, known := state.Get(log.KindVM, m.vm.UUID.String()); known {
			wrong = append(wrong, log.FieldError{Field: "uuid", Code: log.ElementDuplicate, Message: "Already exists"})
		}
		if !m.vm.ServerUUID.IsZero() {
			rec, known := state.Get(log.KindServer, m.vm.ServerUUID.String())
			if !known {
				wrong.add("server_uuid", "Server "+m.vm.ServerUUID.String()+" not found")
			} else {
				agent = hasAgent(rec.Object.(*log.Server))
			}
		}
		m.tags = resolve(state, m.vm.OwnerUUID, m.networks, &wrong)
		m.old = state.Feature() < log.FeatureTriton
	})
	if len(wrong) > 0 {
		return invalidVM(wrong)
	}
	if names := vmrule.Programs(m.vm.UUID.String(), m.payload); len(names) > 0 && s.cfg.Programs != nil && !s.cfg.Programs(r) {
		return mayNotChoose(names)
	}
	if !agent {
		return notHere("the creation of a VM on server " + m.vm.ServerUUID.String() + ", which has no agent of Rutter; this")
	}
	return m.place()
}

// hasAlias reports whether another VM of the owner, which has not ended, has the alias.
func (s *Service) hasAlias(vm *log.VM) (has bool) {
	s.walk(projections.Walk{Kind: log.KindVM}, func(some []subject) {
		for _, one := range some {
			other := one.vm
			has = has || other.OwnerUUID == vm.OwnerUUID && other.Alias == vm.Alias && other.UUID != vm.UUID && other.State != destroyed && other.State != "failed"
		}
	})
	return has
}

// resolve replaces names of networks by their UUIDs, and returns the NIC tags of each: of
// a pool, one for each of its networks. A name is that of a pool, else of a network that
// is no fabric's, else of a fabric network of the owner.
func resolve(state *projections.State, owner log.UUID, networks []provision.Network, wrong *problems) (tags [][]string) {
	for i := range networks {
		n := &networks[i]
		if n.ID() == "" {
			if id := networkNamed(state, owner, n.Name); !id.IsZero() {
				n.UUID = id.String()
			} else {
				wrong.add("networks", "No such network or network pool with name: "+n.Name)
				continue
			}
		}
		id, err := log.ParseUUID(n.ID())
		if err != nil {
			continue // package provision refuses it
		}
		if rec, known := state.Get(log.KindNetworkPool, id.String()); known {
			if of := state.PoolTags(rec.Object.(*log.NetworkPool)); len(of) > 0 {
				tags = append(tags, of)
			}
		} else if net := state.Network(id); net != nil {
			tags = append(tags, []string{net.NICTag})
		} else {
			wrong.add("networks", "No such network or network pool: "+id.String())
		}
	}
	return tags
}

func networkNamed(state *projections.State, owner log.UUID, name string) (id log.UUID) {
	for rec := range state.List(log.KindNetworkPool) {
		if p := rec.Object.(*log.NetworkPool); p.Name == name {
			return p.UUID
		}
	}
	for rec := range state.List(log.KindNetwork) {
		switch n := rec.Object.(*log.Network); {
		case n.Name != name:
		case !n.Fabric:
			return n.UUID
		case slices.Contains(n.OwnerUUIDs, owner):
			id = n.UUID
		}
	}
	return id
}

// inLine calls fn when it is this request's turn to be placed. fn's change releases the
// ticket, or it is deleted afterwards.
func (s *Service) inLine(r *http.Request, fn func(ticket log.UUID) error) error {
	if old := featureOf(s.cfg.Store) < log.FeatureTriton; old {
		return fn(log.UUID{}) // the log has no tickets of the whole cloud yet
	}
	var err error
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) { err = provision.TicketRoom.Check(state, log.UUID{}) })
	if err != nil {
		return fail(http.StatusServiceUnavailable, rest.CodeOverloaded, "%v", err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), ticketTime)
	defer cancel()
	result, err := s.writeOps(r.Context(), r, log.Op{Action: log.Create, Kind: log.KindTicket, Set: []string{"action", "expires_at", "id", "reqid", "scope"}, Object: &log.Ticket{
		Scope: ticketScope, OfID: ticketID, Action: ticketAction, ReqID: r.Header.Get("x-request-id"), Expires: logTime(s.cfg.Store) + log.Time(ticketTime),
	}})
	if err != nil {
		return err
	}
	id, err := log.ParseUUID(result.IDs[0])
	if err != nil {
		return err
	}
	released := false
	defer func() {
		if !released { // the request may be over; what is left expires
			_, _ = s.writeOps(context.WithoutCancel(r.Context()), r, log.Op{Action: log.Delete, Kind: log.KindTicket, ID: id.String()})
		}
	}()
	turn := s.until(ctx, func(state *projections.State) bool {
		rec, known := state.Get(log.KindTicket, id.String())
		return !known || rec.Object.(*log.Ticket).Status != log.TicketQueued
	})
	if !turn {
		return fail(http.StatusServiceUnavailable, rest.CodeOverloaded, "other VMs are being placed: try again")
	}
	err = fn(id)
	released = err == nil
	return err
}

// logTime is the log's time, by which tickets expire.
func logTime(store Store) (at log.Time) {
	store.View(func(state *projections.State, _ log.Cursor) { at = state.Time() })
	return max(at, log.TimeOf(time.Now()))
}

func featureOf(store Store) (version uint32) {
	store.View(func(state *projections.State, _ log.Cursor) { version = state.Feature() })
	return version
}

// make writes the VM, its NICs and the task, and answers.
func (s *Service) make(w http.ResponseWriter, r *http.Request, m *machine) error {
	nics, err := provision.NICs(m.vm, m.networks, true)
	if err != nil {
		return inVMAPIWords(err)
	}
	set := append([]string{"server_uuid", "state", "uuid"}, m.set...)
	if m.old {
		set = slices.DeleteFunc(set, func(name string) bool { return name == "properties" })
	}
	slices.Sort(set)
	ops := append([]log.Op{{Action: log.Create, Kind: log.KindVM, Set: slices.Compact(set), Object: m.vm}}, nics...)
	var after []log.Op
	if !m.ticket.IsZero() {
		after = append(after, log.Op{Action: log.Update, Kind: log.KindTicket, ID: m.ticket.String(), Set: []string{"status"}, Object: &log.Ticket{Status: log.TicketFinished}})
	}
	result, at, err := s.provisioned(r, m.vm, provision.CreateTask, "nics", ops, m.payload, after)
	if err != nil {
		return err
	}
	return s.answerTask(w, r, m.sync, m.vm.UUID, result, at)
}

// provisioned writes ops, whose operations on NICs are the last of them, with a task of the
// VM's compute node and what comes after it. The task names the NICs in the param list. It
// returns at which of the change's ids the task's is.
func (s *Service) provisioned(r *http.Request, vm *log.VM, task, list string, ops []log.Op, payload map[string]json.RawMessage, after []log.Op) (result log.Result, at int, err error) {
	first := slices.IndexFunc(ops, func(op log.Op) bool { return op.Kind == log.KindNIC })
	for range provision.MaxDraws {
		if payload[list], err = provision.Draw(ops[first:]); err != nil {
			return result, 0, err
		}
		text, err := json.Marshal(payload)
		if err != nil {
			return result, 0, err
		}
		all := append(slices.Clone(ops), log.Op{
			Action: log.Create, Kind: log.KindTask, Set: []string{"params", "req_id", "server_uuid", "task"},
			Object: &log.Task{Task: task, ServerUUID: vm.ServerUUID, Params: string(text), ReqID: r.Header.Get("x-request-id")},
		})
		if result, err = s.submit(r.Context(), r, append(all, after...)...); err != nil {
			return result, 0, err
		}
		switch refusal := result.Refusal; {
		case refusal == nil:
			return result, len(ops), s.cfg.Store.WaitSeq(r.Context(), result.Last)
		case !provision.IsTaken(refusal):
			return result, 0, rest.Refused(provision.InWords(refusal, len(all))) // NAPI's, by its fields
		}
	}
	return result, 0, fail(http.StatusServiceUnavailable, rest.CodeUnavailable, "no MAC was free: try again")
}

// recordOf makes the log's VM of a request's object: the fields that the log has, and the
// rest as properties. Metadata is not among them: it may have passwords, and the node
// reports it if it may.
func recordOf(object vmobject.Object) (*log.VM, []string, error) {
	kept := make(vmobject.Object, len(object))
	for name, value := range object {
		if !slices.Contains(unrecorded, name) {
			kept[name] = value
		}
	}
	vm, set, err := vmobject.TakeObject(kept)
	if err != nil {
		return nil, nil, err
	}
	if vm.Properties, _, err = vmobject.Bound(vmobject.Properties(vm), log.MaxProperties); err != nil {
		return nil, nil, err
	}
	if vm.Properties == "" {
		set = slices.DeleteFunc(set, func(name string) bool { return name == "properties" })
	}
	vm.State = provision.Unmade
	return vm, set, nil
}
