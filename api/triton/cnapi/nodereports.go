package cnapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"rutter/agent/sysinfo"
	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// postSysinfo takes a CN's report about itself. An unknown CN gets an object, so that a
// CN that is not set up is listed.
func (s *Service) postSysinfo(w http.ResponseWriter, r *http.Request) error {
	cn, err := s.ofItself(r)
	if err != nil {
		return err
	}
	fields, err := fieldsOf(r)
	if err != nil {
		return err
	}
	raw, ok := fields["sysinfo"]
	if !ok {
		return missingField("sysinfo", `send {"sysinfo": {"UUID": …}}`)
	}
	info, err := sysinfo.Parse(raw)
	if err != nil {
		return badField("sysinfo", "send it in SmartOS's form", "%s", strings.TrimPrefix(err.Error(), sysinfo.ErrInvalid.Error()+": "))
	}
	if !info.UUID.IsZero() && info.UUID != cn {
		return badField("sysinfo.UUID", "post it to the path of its own server", "it is of %s", info.UUID)
	}
	text, err := canonical(raw)
	if err != nil {
		return badField("sysinfo", "send JSON", "%v", err)
	}
	if s.cfg.Beat != nil {
		s.cfg.Beat(cn, !info.Setup)
	}
	// The object may be created or deleted meanwhile: then it is read again.
	for range 3 {
		if err = s.record(r, cn, info, text); err == nil {
			break
		}
		var refusal *log.Refusal
		if !errors.As(err, &refusal) || refusal.Code == log.CodeNotAuthorized {
			return err
		}
	}
	if err != nil {
		return err
	}
	s.makeTags(r.Context(), cn, info)
	s.counts.sysinfos.Add(1)
	rest.WriteJSON(w, r, http.StatusOK, map[string]any{})
	return nil
}

// record writes the changes of the server's object that follow from a sysinfo. The
// address of the node is written by this server, the rest by the sender.
func (s *Service) record(r *http.Request, cn log.UUID, info *sysinfo.Info, text string) error {
	known := s.server(cn)
	said, set := fromSysinfo(cn, known, info, text)
	if known == nil {
		if _, err := s.propose(r.Context(), r, log.Op{Action: log.Create, Kind: log.KindServer, Object: said, Set: append(set, "uuid")}); err != nil {
			return err
		}
		known = said
	} else if would := log.Clone(known); differs(would, known, said, set) {
		if _, err := s.propose(r.Context(), r, log.Op{Action: log.Update, Kind: log.KindServer, ID: cn.String(), Object: said, Set: set}); err != nil {
			return err
		}
	}
	reached := &log.Server{UUID: cn, AdminIP: info.AdminIP(), AgentPort: uint32(info.AgentPort)}
	set = nil
	if known.AdminIP != reached.AdminIP || known.AgentPort != reached.AgentPort {
		why := s.unreachable(cn, reached.AdminIP)
		if why == "" {
			if why = s.sharedWith(cn, reached.AdminIP); why != "" {
				reached.AdminIP, reached.AgentPort = netip.Addr{}, 0 // it says that it is no more where it was
			}
			if known.AdminIP != reached.AdminIP || known.AgentPort != reached.AgentPort {
				set = append(set, "admin_ip", "agent_port")
			}
		}
		if why != "" {
			s.counts.refusedAddresses.Add(1)
			s.logger.Warn("the admin address of a sysinfo is not taken: no task is posted there", "cn", cn, "address", info.AdminIP(), "from", r.RemoteAddr, "why", why)
		}
	}
	if known.TransitionalStatus != "" && known.LastBoot != 0 && said.LastBoot > known.LastBoot {
		set = append(set, "transitional_status") // it came back
	}
	if set == nil {
		return nil
	}
	_, err := s.propose(ownContext{r.Context()}, nil, log.Op{Action: log.Update, Kind: log.KindServer, ID: cn.String(), Object: reached, Set: set})
	return err
}

// ownContext is a request's context without its values: the sender's identity is one of
// them, and would be the author of what this server writes on its own.
type ownContext struct{ context.Context }

// Value implements context.Context.
func (ownContext) Value(any) any { return nil }

// unreachable returns why tasks are not posted to the address in a sysinfo; "" if they
// are.
func (s *Service) unreachable(cn log.UUID, address netip.Addr) (why string) {
	switch {
	case !address.IsValid():
		return "" // the address is removed
	case s.cfg.HTTP == nil:
		return "this server posts no tasks"
	}
	return s.cfg.HTTP.Refuses(cn, address)
}

// sharedWith says which other node is reached at an address; "" if there is none. Two nodes
// at one address are refused (log.FeatureConfined), so that neither gets what is the other's.
func (s *Service) sharedWith(cn log.UUID, address netip.Addr) (why string) {
	if address = address.Unmap(); !address.IsValid() || address.IsLoopback() {
		return ""
	}
	s.store.View(func(state *projections.State, _ log.Cursor) {
		for r := range state.List(log.KindServer) {
			other := r.Object.(*log.Server)
			if state.Feature() >= log.FeatureConfined && other.UUID != cn && other.Status != "expunged" && other.AdminIP.Unmap() == address {
				why = fmt.Sprintf("%s is that of server %s; give each its own, or expunge or delete the one that does not come back", address, other.UUID)
			}
		}
	})
	return why
}

// differs assigns fields to would, a copy of known, and reports whether that
// changes it.
func differs(would, known, said log.Object, set []string) bool {
	log.Assign(would, said, set)
	return !log.Equal(would, known)
}

// fromSysinfo returns a server's fields from a sysinfo (spec/cnapi.md section 4.3), and
// their names. Fields that it does not mention keep their values. So does a hostname
// that was not set by the node itself. known is the present server, or nil.
func fromSysinfo(cn log.UUID, known *log.Server, info *sysinfo.Info, text string) (*log.Server, []string) {
	o := &log.Server{
		UUID: cn, Hostname: info.Hostname, Setup: info.Setup, Headnode: info.Headnode, RAM: info.MemoryMiB,
		CurrentPlatform: info.LiveImage, LastBoot: log.Time(info.BootTime * int64(time.Second)),
		Created: log.Time(info.ZpoolCreated * int64(time.Second)), Sysinfo: text,
	}
	set := []string{"headnode", "setup", "sysinfo"}
	for name, is := range map[string]bool{
		"hostname": o.Hostname != "" && ownName(known), "ram": o.RAM != 0, "current_platform": o.CurrentPlatform != "",
		"last_boot": o.LastBoot != 0, "created": o.Created != 0,
	} {
		if is {
			set = append(set, name)
		}
	}
	slices.Sort(set)
	return o, set
}

// ownName reports whether a server has the hostname of its own sysinfo, or none. CNAPI
// always takes the sysinfo's; here a name set by an operator is kept.
func ownName(known *log.Server) bool {
	if known == nil || known.Hostname == "" {
		return true
	}
	before, err := sysinfo.Parse([]byte(known.Sysinfo))
	return err == nil && known.Hostname == before.Hostname
}

func (s *Service) getSysinfo(w http.ResponseWriter, r *http.Request) error {
	o, err := s.needServer(r)
	if err != nil {
		return err
	}
	rest.WriteJSON(w, r, http.StatusOK, map[string]any{"sysinfo": asJSON(o.Sysinfo, "{}")})
	return nil
}

// heartbeat is answered at once; the leader counts it (api/liveness).
func (s *Service) heartbeat(w http.ResponseWriter, r *http.Request) error {
	cn, err := s.ofItself(r)
	if err != nil {
		return err
	}
	if s.cfg.Beat != nil {
		s.cfg.Beat(cn, false)
	}
	s.counts.heartbeats.Add(1)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// report is the report of a CN without a Rutter agent about its VMs.
type report struct {
	cn  log.UUID
	vms map[string]map[string]json.RawMessage
	// asked has the identity of the sender, which is the author of what is written of it.
	asked context.Context
	actor string
	by    log.Author
}

// status is answered before it is processed, as CNAPI does.
func (s *Service) status(w http.ResponseWriter, r *http.Request) error {
	cn, err := s.ofItself(r)
	if err != nil {
		return err
	}
	var body struct {
		VMs    map[string]map[string]json.RawMessage `json:"vms"`
		Memory map[string]any                        `json:"meminfo"`
		Disks  map[string]any                        `json:"diskinfo"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return failure(http.StatusBadRequest, rest.CodeBadRequest, "the body is not a status: %s", wrongKind(err, "object"))
	}
	s.keepSoft(cn, soft{numbers(body.Memory), numbers(body.Disks), s.cfg.Now()})
	one := report{cn: cn, vms: body.VMs, asked: context.WithoutCancel(r.Context()), actor: Actor}
	if s.cfg.Asker != nil {
		one.actor, one.by = s.cfg.Asker(r)
	}
	select {
	case s.reports <- one:
		s.counts.reports.Add(1)
	default: // the next whole one comes within a minute
		s.counts.dropped.Add(1)
		s.logger.Warn("a status report is dropped: too many wait", "cn", cn)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// maxNumbers bounds what is kept of one report of memory or disks.
const maxNumbers = 32

func numbers(from map[string]any) map[string]json.Number {
	kept := make(map[string]json.Number)
	for name, v := range from {
		if n, ok := v.(float64); ok && len(kept) < maxNumbers && len(name) < 64 {
			b, err := json.Marshal(n)
			if err == nil {
				kept[name] = json.Number(b)
			}
		}
	}
	return kept
}

func (s *Service) keepSoft(cn log.UUID, said soft) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.soft[cn]; known || len(s.soft) < maxSoft {
		s.soft[cn] = said
	}
}

func (s *Service) takeReports(ctx context.Context) {
	for {
		select {
		case one := <-s.reports:
			if err := s.takeReport(ctx, one); err != nil && ctx.Err() == nil {
				s.logger.Warn("the VMs of a status report are not all in the log", "cn", one.cn, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// vmFields are those of a status report that the log keeps (spec/cnapi.md §4.1).
var vmFields = []string{"alias", "brand", "cpu_cap", "last_modified", "max_physical_memory", "owner_uuid", "quota", "state", "zone_state"}

// takeReport writes a CN's report about its VMs into the log. A VM that it does not
// mention stays: an incomplete list deletes nothing (architecture rule 8). A VM that
// the log has on another CN is ignored. A VM that is being provisioned stays so until
// it is reported.
func (s *Service) takeReport(ctx context.Context, one report) error {
	var errs []error
	var ops []log.Op
	now := log.TimeOf(s.cfg.Now()) // before the view: the log's clock reads the state itself
	s.store.View(func(state *projections.State, _ log.Cursor) {
		if _, known := state.Get(log.KindServer, one.cn.String()); !known {
			return
		}
		for id, fields := range one.vms {
			op, err := vmOp(state, one.cn, id, fields, now)
			if err != nil {
				errs = append(errs, err)
			} else if op != nil {
				ops = append(ops, *op)
			}
		}
	})
	slices.SortFunc(ops, func(a, b log.Op) int { return slices.Compare([]byte(a.ID), []byte(b.ID)) })
	asked, cancel := context.WithCancel(one.asked)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	for _, op := range ops {
		if err := s.proposeReport(asked, one, op); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// proposeReport makes one change of a report, by its author.
func (s *Service) proposeReport(ctx context.Context, one report, op log.Op) error {
	id, err := s.changeID(nil)
	if err != nil {
		return err
	}
	_, err = s.write(ctx, &log.Change{ID: id, Actor: one.actor, By: one.by, Ops: []log.Op{op}})
	return err
}

// vmOp returns the operation that makes a VM of the log match its CN's report; nil if
// it matches.
func vmOp(state *projections.State, cn log.UUID, id string, fields map[string]json.RawMessage, now log.Time) (*log.Op, error) {
	kept := map[string]json.RawMessage{}
	for _, name := range vmFields {
		if raw, ok := fields[name]; ok && string(raw) != "null" {
			kept[name] = raw
		}
	}
	raw, err := json.Marshal(kept)
	if err != nil {
		return nil, err
	}
	object, set, err := log.ParseObject(log.KindVM, raw)
	if err != nil {
		return nil, err
	}
	said := object.(*log.VM)
	if said.UUID, err = log.ParseUUID(id); err != nil {
		return nil, err
	}
	rec, known := state.Get(log.KindVM, id)
	if !known {
		said.ServerUUID = cn
		return &log.Op{Action: log.Create, Kind: log.KindVM, Object: said, Set: append(set, "server_uuid", "uuid")}, nil
	}
	vm := rec.Object.(*log.VM)
	if vm.ServerUUID != cn || vm.State == "provisioning" && said.State != "running" && said.State != "stopped" {
		return nil, nil
	}
	if stale(vm, said, now) {
		return nil, nil
	}
	// Whose a VM is, the log knows; a report does not change it (log.Rights).
	set = slices.DeleteFunc(set, func(name string) bool { return name == "owner_uuid" })
	would := log.Clone(vm)
	if log.Assign(would, said, set); log.Equal(would, vm) {
		return nil, nil
	}
	return &log.Op{Action: log.Update, Kind: log.KindVM, ID: vm.ID(), IfMatch: rec.Revision, IfSeq: rec.Seq, Object: said, Set: set}, nil
}

// staleFor is for how long the last_modified that the log has of a VM holds back reports
// with an older one. Longer than two whole reports of a cn-agent are apart.
const staleFor = log.Time(150 * time.Second)

// stale reports whether a status report says less of a VM than the log has: the agent makes
// it from time to time, and vm-agent's PUT of a later change may be in the log first. Where
// the log's time is not of the node's clock, later reports are taken all the same. A VM that
// was destroyed comes back by what is newer only: no later report would correct that.
func stale(vm, said *log.VM, now log.Time) bool {
	if vm.State == "destroyed" {
		return said.LastModified <= vm.LastModified
	}
	return said.LastModified != 0 && said.LastModified < vm.LastModified && now-vm.LastModified < staleFor
}
