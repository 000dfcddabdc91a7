package cnapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/designation"
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

// extrasOf reads ?extras=. As in CNAPI, names that are not known add nothing.
func extrasOf(text string) extras {
	e := make(extras)
	for name := range strings.SplitSeq(text, ",") {
		e[name] = true
	}
	return e
}

func (e extras) has(name string) bool { return e["all"] || e[name] }

// serverQuery is what GET /servers asks for.
type serverQuery struct {
	picks         []func(*log.Server) bool
	extras        extras
	fields        []string // nil: all
	limit, offset int
}

// serverQueryOf reads the parameters of GET /servers. Others than those are refused.
func serverQueryOf(query url.Values) (q serverQuery, err error) {
	for name, values := range query {
		filter, plain := serverFilters[name]
		flag, boolean := serverFlags[name]
		value := strings.ToLower(values[0])
		switch {
		case plain:
			q.picks = append(q.picks, func(o *log.Server) bool { return filter(o, values[0]) })
		case boolean && value != "true" && value != "false":
			return q, invalidParameters(name, "Invalid value for param '"+name+"'")
		case boolean:
			q.picks = append(q.picks, func(o *log.Server) bool { return flag(o) == (value == "true") })
		case !slices.Contains([]string{"extras", "fields", "limit", "offset"}, name):
			return q, notDefined(name)
		}
	}
	q.extras = extrasOf(query.Get("extras"))
	if text := query.Get("fields"); text != "" {
		q.fields = strings.Split(text, ",")
		q.extras = extras{"all": true}
	}
	q.limit, q.offset, err = serverPage(query)
	return q, err
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

// serverPage reads limit and offset of GET /servers, with CNAPI's answers to what is wrong.
func serverPage(query url.Values) (limit, offset int, err error) {
	limit, offset, bad := rest.Page(query, maxList, query.Has)
	if bad == "" {
		return limit, offset, nil
	}
	if _, err := strconv.Atoi(query.Get(bad)); err != nil || bad == "offset" {
		return 0, 0, invalidParameters(bad, "Invalid value for param '"+bad+"'")
	}
	wrong := rest.Fail(http.StatusBadRequest, log.CodeInvalidParameters, "", "Request parameters failed validation")
	wrong.Errors = []log.FieldError{{Field: bad, Code: "Invalid", Message: fmt.Sprintf("limit must be in the range 1-%d (inclusive)", maxList)}}
	return 0, 0, wrong
}

func (s *Service) listServers(w http.ResponseWriter, r *http.Request) error {
	q, err := serverQueryOf(r.URL.Query())
	if err != nil {
		return err
	}
	signs := s.lastSigns(r.Context(), q.extras)
	var picked []*log.Server
	s.store.View(func(state *projections.State, _ log.Cursor) {
		for rec := range state.List(log.KindServer) {
			o := rec.Object.(*log.Server)
			if slices.ContainsFunc(q.picks, func(pick func(*log.Server) bool) bool { return !pick(o) }) {
				continue
			}
			if q.offset--; q.offset >= 0 {
				continue
			}
			if len(picked) == q.limit {
				break
			}
			picked = append(picked, o)
		}
	})
	capacities := s.capacitiesOf(picked, q.extras)
	list := make([]map[string]any, 0, len(picked))
	for some := range slices.Chunk(picked, formsAtOnce) {
		s.store.View(func(state *projections.State, _ log.Cursor) {
			look := s.looking(state, q.extras, signs, capacities)
			for _, o := range some {
				list = append(list, only(look.form(o), q.fields))
			}
		})
	}
	rest.WriteJSON(w, r, http.StatusOK, list)
	return nil
}

// formsAtOnce bounds the servers that a list shows in one view: no change is applied
// meanwhile.
const formsAtOnce = 64

// capacitiesOf are what servers have left; nil if that is not asked for.
func (s *Service) capacitiesOf(servers []*log.Server, e extras) map[log.UUID]designation.Capacity {
	if !e.has("capacity") {
		return nil
	}
	var d designation.Defaults
	view := s.view()
	view(func(state *projections.State) { d = defaultsOf(state) })
	return designation.Figures(view, &designation.Memo{}, &d, servers)
}

// only keeps the fields that were asked for; nil: all.
func only(form map[string]any, fields []string) map[string]any {
	if fields == nil {
		return form
	}
	for name := range form {
		if !slices.Contains(fields, name) {
			delete(form, name)
		}
	}
	return form
}

// getServer answers a server with all extras, or the default server.
func (s *Service) getServer(w http.ResponseWriter, r *http.Request) error {
	for name := range r.URL.Query() {
		if name != "extras" { // node-sdc-clients may send it; everything is shown
			return notDefined(name)
		}
	}
	if r.PathValue("server") == defaultServer {
		return s.getDefaultServer(w, r)
	}
	e := extras{"all": true}
	signs := s.lastSigns(r.Context(), e)
	o, err := s.needServer(r)
	if err != nil {
		return err
	}
	var form map[string]any
	capacities := s.capacitiesOf([]*log.Server{o}, e)
	s.store.View(func(state *projections.State, _ log.Cursor) { form = s.looking(state, e, signs, capacities).form(o) })
	rest.WriteJSON(w, r, http.StatusOK, form)
	return nil
}

// lastSigns asks when CNs were last heard, if the answer is to say it. Without the
// leader it stays unsaid. The log's clock is read here, and not while a view holds the
// state: it reads the state itself, and would wait for a writer that waits for the view.
func (s *Service) lastSigns(ctx context.Context, e extras) map[log.UUID]signSeen {
	if s.cfg.LastSigns == nil || !e.has("status") {
		return nil
	}
	list, err := s.cfg.LastSigns(ctx)
	if err != nil {
		return nil
	}
	now := s.cfg.Now()
	all := make(map[log.UUID]signSeen, len(list))
	for _, h := range list {
		if h.Ago >= 0 {
			all[h.CN] = signSeen{log.TimeOf(now.Add(-h.Ago).UTC()), h.Server}
		}
	}
	return all
}

// signSeen is when a CN was last heard, and by which server.
type signSeen struct {
	at log.Time
	by string
}

// look shows servers by one state, as long as that stays as it is.
type look struct {
	s          *Service
	state      *projections.State
	e          extras
	signs      map[log.UUID]signSeen
	capacities map[log.UUID]designation.Capacity // nil: they are not asked for
	defaults   designation.Defaults
}

func (s *Service) looking(state *projections.State, e extras, signs map[log.UUID]signSeen, capacities map[log.UUID]designation.Capacity) *look {
	return &look{s: s, state: state, e: e, signs: signs, capacities: capacities, defaults: defaultsOf(state)}
}

// form is a server as CNAPI shows it (spec/cnapi.md section 4.3).
func (l *look) form(o *log.Server) map[string]any {
	e := l.e
	m := map[string]any{
		"uuid": o.UUID, "hostname": o.Hostname, "datacenter": o.Datacenter, "status": o.Status, "setup": o.Setup,
		"setting_up": o.SettingUp, "headnode": o.Headnode, "reserved": o.Reserved, "reservoir": o.Reservoir,
		"comments": o.Comments, "rack_identifier": o.RackIdentifier, "serial": o.Serial, "ram": o.RAM,
		"current_platform": o.CurrentPlatform, "boot_platform": o.BootPlatform, "default_console": o.DefaultConsole,
		"transitional_status": o.TransitionalStatus, "boot_params": asJSON(o.BootParams, "{}"), "boot_modules": asJSON(o.BootModules, "[]"),
		"kernel_flags": asJSON(o.KernelFlags, "{}"), "overprovision_ratios": asJSON(o.OverprovisionRatio, "{}"),
		"traits": asJSON(o.Traits, "{}"), "reservation_ratio": asJSON(ratio(o.ReservationRatio), l.defaults.DefaultReservation),
	}
	if o.Created != 0 {
		m["created"] = o.Created
	}
	if o.LastBoot != 0 {
		m["last_boot"] = o.LastBoot
	}
	if h, ok := l.signs[o.UUID]; ok {
		m["last_heartbeat"], m["cnapi_instance"] = h.at, h.by
	}
	if e.has("sysinfo") {
		m["sysinfo"] = asJSON(o.Sysinfo, "{}")
	}
	if e.has("agents") {
		m["agents"] = agentsForm(o)
	}
	l.addVMs(m, o)
	l.addCapacity(m, o)
	l.addSizes(m, o)
	l.s.addSoft(m, o, e)
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

// addVMs shows the VMs of a server.
func (l *look) addVMs(m map[string]any, o *log.Server) {
	if !l.e.has("vms") {
		return
	}
	vms := map[string]any{}
	for rec := range l.state.VMsOn(o.UUID) {
		vm := rec.Object.(*log.VM)
		if vm.State == "destroyed" {
			continue
		}
		vms[vm.UUID.String()] = map[string]any{
			"uuid": vm.UUID, "owner_uuid": vm.OwnerUUID, "brand": vm.Brand, "state": vm.State, "zone_state": vm.ZoneState,
			"max_physical_memory": vm.MaxPhysicalMemory, "quota": vm.Quota, "cpu_cap": vm.CPUCap, "last_modified": vm.LastModified,
		}
	}
	m["vms"] = vms
}

// addCapacity shows what the VMs leave of a server, and the ratios by which that is
// counted.
func (l *look) addCapacity(m map[string]any, o *log.Server) {
	c, ok := l.capacities[o.UUID]
	if !ok {
		return
	}
	m["unreserved_cpu"], m["unreserved_ram"], m["unreserved_disk"] = c.CPU, c.RAM, c.Disk
	if !l.defaults.DisableOverride {
		m["overprovision_ratios"] = json.RawMessage(l.defaults.Ratios())
	}
}

// addSizes shows memory and disks by the log. What a node told of them to this server
// replaces these figures.
func (l *look) addSizes(m map[string]any, o *log.Server) {
	var memory, zones int64
	for rec := range l.state.VMsOn(o.UUID) {
		if vm := rec.Object.(*log.VM); vm.State != "destroyed" && vm.State != "failed" {
			memory, zones = memory+int64(vm.MaxPhysicalMemory)<<20, zones+int64(vm.Quota)<<30
		}
	}
	if l.e.has("memory") && o.RAM > 0 {
		m["memory_total_bytes"] = o.RAM << 20
		m["memory_provisionable_bytes"] = int64(designation.Unreserved(o, &l.defaults))<<20 - memory
	}
	if facts := designation.FactsOf(o.Sysinfo); l.e.has("disk") && facts.PoolMiB > 0 {
		m["disk_pool_size_bytes"], m["disk_zone_quota_bytes"] = facts.PoolMiB<<20, zones
	}
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
	// Each update is decided as one with all others, so that there is no conflict to try
	// again after: etag_retries has nothing to do. CNAPI reads nics and does nothing with it.
	for name, want := range map[string]byte{"etag_retries": '0', "nics": '['} {
		raw, given := fields[name]
		if given && (want == '[') != (raw[0] == '[') || given && want == '0' && (raw[0] < '0' || raw[0] > '9') {
			return badField(name, "leave it out: it changes nothing", "%s", map[byte]string{'0': "value was not a number", '[': "value was not an array"}[want])
		}
		delete(fields, name)
	}
	delete(fields, "server_uuid")
	if len(fields) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	op, err := serverOp(cn, fields)
	if err != nil {
		return err
	}
	return s.change(w, r, op)
}

// emptyForms are the values that a field which is JSON has when it has none.
var emptyForms = map[string]string{
	"boot_params": "{}", "boot_modules": "[]", "kernel_flags": "{}", "overprovision_ratios": "{}", "traits": "{}",
}

// serverOp is an update of a server by fields in CNAPI's form.
func serverOp(cn log.UUID, fields map[string]json.RawMessage) (log.Op, error) {
	kept := make(map[string]any, len(fields))
	for name, raw := range fields {
		isJSON, ok := writable[name]
		switch {
		case !ok:
			return log.Op{}, notDefined(name)
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
