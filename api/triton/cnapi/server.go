package cnapi

import (
	"context"
	"encoding/json"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// serverFlags are the parameters of GET /servers that are true or false.
var serverFlags = map[string]func(s *log.Server) bool{
	"setup":     func(s *log.Server) bool { return s.Setup },
	"headnode":  func(s *log.Server) bool { return s.Headnode },
	"reserved":  func(s *log.Server) bool { return s.Reserved },
	"reservoir": func(s *log.Server) bool { return s.Reservoir },
}

// serverFilters are the other parameters that pick servers.
var serverFilters = map[string]func(s *log.Server, value string) bool{
	"hostname":   func(s *log.Server, v string) bool { return s.Hostname == v },
	"datacenter": func(s *log.Server, v string) bool { return s.Datacenter == v },
	"status":     func(s *log.Server, v string) bool { return s.Status == v },
	"uuids":      func(s *log.Server, v string) bool { return slices.Contains(strings.Split(v, ","), s.UUID.String()) },
}

// extras are what an answer has besides the record.
type extras map[string]bool

var knownExtras = []string{"agents", "all", "capacity", "disk", "memory", "status", "sysinfo", "vms"}

func extrasOf(text string) (extras, error) {
	e := make(extras)
	for name := range strings.SplitSeq(text, ",") {
		if name == "" {
			continue
		}
		if !slices.Contains(knownExtras, name) {
			return nil, badField("extras", "send some of "+strings.Join(knownExtras, ","), "%q is not known", name)
		}
		e[name] = true
	}
	return e, nil
}

func (e extras) has(name string) bool { return e["all"] || e[name] }

func (s *Service) listServers(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	var picks []func(*log.Server) bool
	for name, values := range query {
		filter, plain := serverFilters[name]
		flag, boolean := serverFlags[name]
		switch {
		case plain:
			picks = append(picks, func(o *log.Server) bool { return filter(o, values[0]) })
		case boolean && values[0] != "true" && values[0] != "false":
			return badField(name, "send true or false", "%q is neither true nor false", values[0])
		case boolean:
			picks = append(picks, func(o *log.Server) bool { return flag(o) == (values[0] == "true") })
		case !slices.Contains([]string{"extras", "limit", "offset"}, name):
			return badField(name, "leave it out", "servers are not found by %q", name)
		}
	}
	e, err := extrasOf(query.Get("extras"))
	if err != nil {
		return err
	}
	limit, offset, err := pageOf(query)
	if err != nil {
		return err
	}
	heard := s.lastSigns(r.Context(), e)
	list := []map[string]any{}
	s.store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.List(log.KindServer) {
			o := rec.Object.(*log.Server)
			if slices.ContainsFunc(picks, func(pick func(*log.Server) bool) bool { return !pick(o) }) {
				continue
			}
			if offset--; offset >= 0 {
				continue
			}
			if len(list) == limit {
				break
			}
			list = append(list, s.form(state, o, e, heard))
		}
	})
	rest.WriteJSON(w, r, http.StatusOK, list)
	return nil
}

func pageOf(query url.Values) (limit, offset int, err error) {
	limit, offset, bad := rest.Page(query, maxList, query.Has)
	switch bad {
	case "limit":
		return 0, 0, badField(bad, "ask for fewer, and for the rest with offset", "%q is no number from 1 to %d", query.Get(bad), maxList)
	case "offset":
		return 0, 0, badField(bad, "send how many are passed over", "%q is no number from 0 on", query.Get(bad))
	}
	return limit, offset, nil
}

func (s *Service) getServer(w http.ResponseWriter, r *http.Request) error {
	e := extras{"all": true}
	if r.URL.Query().Has("extras") {
		var err error
		if e, err = extrasOf(r.URL.Query().Get("extras")); err != nil {
			return err
		}
	}
	heard := s.lastSigns(r.Context(), e)
	o, err := s.needServer(r)
	if err != nil {
		return err
	}
	var form map[string]any
	s.store.View(func(state *projections.State, _ log.Cursor) { form = s.form(state, o, e, heard) })
	rest.WriteJSON(w, r, http.StatusOK, form)
	return nil
}

// lastSigns asks when CNs were last heard, if the answer is to say it. Without the
// leader it stays unsaid.
func (s *Service) lastSigns(ctx context.Context, e extras) map[log.UUID]LastSign {
	if s.cfg.LastSigns == nil || !e.has("status") {
		return nil
	}
	list, err := s.cfg.LastSigns(ctx)
	if err != nil {
		return nil
	}
	all := make(map[log.UUID]LastSign, len(list))
	for _, h := range list {
		all[h.CN] = h
	}
	return all
}

// form is a server as CNAPI shows it (spec/cnapi.md section 4.3).
func (s *Service) form(state *projections.State, o *log.Server, e extras, heard map[log.UUID]LastSign) map[string]any {
	m := map[string]any{
		"uuid": o.UUID, "hostname": o.Hostname, "datacenter": o.Datacenter, "status": o.Status, "setup": o.Setup,
		"setting_up": o.SettingUp, "headnode": o.Headnode, "reserved": o.Reserved, "reservoir": o.Reservoir,
		"comments": o.Comments, "rack_identifier": o.RackIdentifier, "serial": o.Serial, "ram": o.RAM,
		"current_platform": o.CurrentPlatform, "boot_platform": o.BootPlatform, "default_console": o.DefaultConsole,
		"transitional_status": o.TransitionalStatus, "boot_params": asJSON(o.BootParams, "{}"), "boot_modules": asJSON(o.BootModules, "[]"),
		"kernel_flags": asJSON(o.KernelFlags, "{}"), "overprovision_ratios": asJSON(o.OverprovisionRatio, "{}"),
		"traits": asJSON(o.Traits, "{}"), "reservation_ratio": asJSON(ratio(o.ReservationRatio), "0"),
	}
	if o.Created != 0 {
		m["created"] = o.Created
	}
	if o.LastBoot != 0 {
		m["last_boot"] = o.LastBoot
	}
	if h, ok := heard[o.UUID]; ok && h.Ago >= 0 {
		m["last_heartbeat"] = log.TimeOf(s.cfg.Now().Add(-h.Ago).UTC())
		m["cnapi_instance"] = h.Server
	}
	if e.has("sysinfo") {
		m["sysinfo"] = asJSON(o.Sysinfo, "{}")
	}
	if e.has("agents") {
		m["agents"] = agentsForm(o)
	}
	if e.has("vms") || e.has("capacity") {
		s.addVMs(m, state, o, e)
	}
	s.addSoft(m, o, e)
	return m
}

func agentsForm(o *log.Server) []json.RawMessage {
	list := []json.RawMessage{}
	for _, text := range o.Agents {
		list = append(list, json.RawMessage(text))
	}
	return list
}

// asJSON is JSON kept in text, or what stands for none.
func asJSON(text, none string) json.RawMessage {
	if text == "" {
		text = none
	}
	return json.RawMessage(text)
}

// ratio is a number as JSON writes it: with a digit before the point and after.
func ratio(text string) string {
	if strings.HasPrefix(text, ".") {
		text = "0" + text
	}
	return strings.TrimSuffix(text, ".")
}

// addVMs shows the VMs of a server, and what they leave of it.
func (s *Service) addVMs(m map[string]any, state *projections.State, o *log.Server, e extras) {
	vms := map[string]any{}
	var memory, cpu uint64
	for rec := range state.VMsOn(o.UUID) {
		vm := rec.Object.(*log.VM)
		if vm.State == "destroyed" {
			continue
		}
		memory, cpu = memory+vm.MaxPhysicalMemory, cpu+vm.CPUCap
		vms[vm.UUID.String()] = map[string]any{
			"uuid": vm.UUID, "owner_uuid": vm.OwnerUUID, "brand": vm.Brand, "state": vm.State, "zone_state": vm.ZoneState,
			"max_physical_memory": vm.MaxPhysicalMemory, "quota": vm.Quota, "cpu_cap": vm.CPUCap, "last_modified": vm.LastModified,
		}
	}
	if e.has("vms") {
		m["vms"] = vms
	}
	if e.has("capacity") && o.RAM > 0 {
		m["unreserved_ram"] = max(usable(o.RAM, o.ReservationRatio)-int64(memory), 0)
		var cores struct {
			N uint64 `json:"CPU Total Cores"`
		}
		if json.Unmarshal([]byte(o.Sysinfo), &cores) == nil && cores.N > 0 {
			m["unreserved_cpu"] = max(int64(cores.N*100)-int64(cpu), 0)
		}
	}
}

// usable is what a reservation ratio leaves of n, rounded down.
func usable(n uint64, reserved string) int64 {
	part, ok := new(big.Rat).SetString(reserved)
	if !ok {
		return int64(n)
	}
	rest := new(big.Rat).Mul(new(big.Rat).SetUint64(n), part.Sub(big.NewRat(1, 1), part))
	return new(big.Int).Quo(rest.Num(), rest.Denom()).Int64()
}

// writable are the fields that POST /servers/UUID takes; those that are JSON in
// the record are sent as JSON.
var writable = map[string]bool{
	"agents": true, "boot_params": true, "boot_modules": true, "kernel_flags": true, "overprovision_ratios": true, "traits": true,
	"boot_platform": false, "comments": false, "datacenter": false, "default_console": false, "hostname": false,
	"rack_identifier": false, "reserved": false, "reservoir": false, "serial": false, "setup": false, "setting_up": false,
	"transitional_status": false, "reservation_ratio": true, "headnode": false, "ram": false, "current_platform": false, "created": false, "last_boot": false,
}

func (s *Service) updateServer(w http.ResponseWriter, r *http.Request) error {
	cn, err := serverOf(r)
	if err != nil {
		return err
	}
	fields, err := fieldsOf(r)
	if err != nil {
		return err
	}
	if len(fields) == 0 {
		return badField("body", "send the fields to update", "there is nothing to update")
	}
	delete(fields, "server_uuid")
	op, err := serverOp(cn, fields)
	if err != nil {
		return err
	}
	return s.change(w, r, op)
}

// emptyForms are the values that a field which is JSON has when it has none.
var emptyForms = map[string]string{
	"boot_params": "{}", "boot_modules": "[]", "kernel_flags": "{}", "overprovision_ratios": "{}", "traits": "{}", "reservation_ratio": "0",
}

// serverOp is an update of a server by fields in CNAPI's form.
func serverOp(cn log.UUID, fields map[string]json.RawMessage) (log.Op, error) {
	kept := make(map[string]any, len(fields))
	for name, raw := range fields {
		isJSON, ok := writable[name]
		switch {
		case !ok:
			return log.Op{}, badField(name, "leave it out", "a server has no field %q that can be written", name)
		case !isJSON || string(raw) == "null":
			kept[name] = raw
		case name == "agents":
			var list []json.RawMessage
			if err := json.Unmarshal(raw, &list); err != nil {
				return log.Op{}, badField(name, "send a list of objects", "%s", wrongKind(err, "list"))
			}
			texts := make([]string, len(list))
			for i, one := range list {
				texts[i], _ = canonical(one) // it was read as JSON just now
			}
			kept[name] = texts
		default:
			text, err := canonical(raw)
			if err != nil {
				return log.Op{}, badField(name, "send JSON", "%v", err)
			}
			if text == emptyForms[name] {
				text = ""
			}
			kept[name] = strings.Trim(text, `"`)
		}
	}
	raw, err := json.Marshal(kept)
	if err != nil {
		return log.Op{}, err
	}
	object, set, err := log.ParseObject(log.KindServer, raw)
	return log.Op{Action: log.Update, Kind: log.KindServer, ID: cn.String(), Object: object, Set: set}, err
}

func (s *Service) deleteServer(w http.ResponseWriter, r *http.Request) error {
	cn, err := serverOf(r)
	if err != nil {
		return err
	}
	return s.change(w, r, log.Op{Action: log.Delete, Kind: log.KindServer, ID: cn.String()})
}

func (s *Service) listVMs(w http.ResponseWriter, r *http.Request) error {
	o, err := s.needServer(r)
	if err != nil {
		return err
	}
	list := []*log.VM{}
	s.store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.VMsOn(o.UUID) {
			if len(list) < maxList {
				list = append(list, rec.Object.(*log.VM))
			}
		}
	})
	rest.WriteJSON(w, r, http.StatusOK, list)
	return nil
}

func (s *Service) getVM(w http.ResponseWriter, r *http.Request) error {
	cn, err := serverOf(r)
	if err != nil {
		return err
	}
	vm, err := need(s, r, log.KindVM, "vm", "VM not found on this server", func(vm *log.VM) bool { return vm.ServerUUID == cn })
	if err != nil {
		return err
	}
	rest.WriteJSON(w, r, http.StatusOK, vm)
	return nil
}

// soft is what a CN last said to this server of its memory and disks. It is not
// written anywhere: it changes all the time.
type soft struct {
	memory, disks map[string]json.Number
	at            time.Time
}

// addSoft shows memory and disks, as far as the CN told them to this server.
func (s *Service) addSoft(m map[string]any, o *log.Server, e extras) {
	s.mu.Lock()
	said, ok := s.soft[o.UUID]
	s.mu.Unlock()
	if !ok {
		return
	}
	if e.has("memory") {
		for from, to := range map[string]string{"availrmem_bytes": "memory_available_bytes", "arcsize_bytes": "memory_arc_bytes", "total_bytes": "memory_total_bytes"} {
			if n, ok := said.memory[from]; ok {
				m[to] = n
			}
		}
	}
	if e.has("disk") {
		for name, n := range said.disks {
			m["disk_"+name] = n
		}
	}
	if e.has("status") {
		m["last_status_update"] = log.TimeOf(said.at.UTC())
	}
}
