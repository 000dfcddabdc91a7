package api

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"rutter/api/auth/guard"
	"rutter/api/auth/matrix"
	"rutter/api/backend"
	"rutter/api/internal/nodes"
	"rutter/api/internal/rest"
	"rutter/api/triton/vmapi"
	"rutter/log"
	"rutter/log/vmrule"
	"rutter/projections"
)

// unknownState is the state of the VMs of an unreachable CN: the state in the log may
// be outdated (spec/cnapi.md §4.2; VMAPI since TRITON-2069).
const unknownState = "unknown"

// vmForm is a VM in an answer.
func vmForm(state *projections.State, vm *log.VM) *log.VM {
	server, known := state.Get(log.KindServer, vm.ServerUUID.String())
	if !known || server.Object.(*log.Server).Status != "unknown" || vm.State == "destroyed" {
		return vm
	}
	seen := *vm
	seen.State = unknownState
	return &seen
}

// isOwn reports whether a VM is on the compute node that asks. To it, the state is as it
// reported it, also before the log takes the node for running: a command on the node can
// then see that its work is in the log.
func isOwn(who matrix.Identity, vm *log.VM) bool {
	return who.Role == matrix.CN && who.UUID == vm.ServerUUID
}

// Bounds of a lookup.
const (
	maxConditions = 32
	maxPattern    = 256 // bytes of a regular expression; Go's match in linear time
)

// condition is one NAME=VALUE of a lookup.
type condition struct {
	path    []string // names; a NIC's index or * is one element
	value   string
	pattern *regexp.Regexp // instead of value
}

func (c *condition) holds(text string) bool {
	if c.pattern != nil {
		return c.pattern.MatchString(text)
	}
	return text == c.value
}

// lookupVMs answers GET /vms/lookup?NAME=VALUE&…: the VMs that match all conditions, as
// vmadm lookup. NAME is a VM's field or nics.N.FIELD. N is an index of the list sorted
// by MAC, or *. A VALUE of ~PATTERN is a regular expression. unique asks for exactly
// one VM, fields=A,B for some fields of each.
func (o *objectRoutes) lookupVMs(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.AnyQuery(r)
	if err != nil {
		return err
	}
	conditions, err := conditionsOf(p.Values())
	if err != nil {
		return err
	}
	unique, err := p.Flag("unique")
	if err != nil {
		return err
	}
	limit, err := p.Number("limit", MaxList, 1, MaxList)
	if err != nil {
		return err
	}
	fields, err := lookupFields(p)
	if err != nil {
		return err
	}
	if err := o.read.Fresh(r, p); err != nil {
		return err
	}
	found := []map[string]json.RawMessage{}
	withNICs := slices.ContainsFunc(conditions, func(c condition) bool { return len(c.path) > 1 })
	var slice []candidate
	if err := o.lookupCandidates(w, r, p, func(state *projections.State, rec projections.Record) {
		slice = append(slice, candidateOf(state, rec.Object.(*log.VM), withNICs))
	}, func() bool {
		for i := range slice {
			if vm, all := slice[i].match(conditions); all && uint64(len(found)) < limit {
				found = append(found, part(vm, fields))
			}
		}
		slice = slice[:0]
		return uint64(len(found)) < limit
	}); err != nil {
		return err
	}
	if unique && len(found) != 1 {
		return rest.Fail(http.StatusConflict, "NotUnique", "ask for more of it, or without unique", "%d VMs match, and exactly one was asked for", len(found))
	}
	rest.WriteJSON(w, r, http.StatusOK, found)
	return nil
}

// lookupOptions are the parameters of a lookup that are not conditions.
var lookupOptions = append([]string{"unique", "fields", "limit", "at"}, rest.Freshness...)

// conditionsOf reads the conditions of a lookup. A name may be repeated.
func conditionsOf(values url.Values) (all []condition, err error) {
	vmFields, nicFields := log.FieldNames(log.KindVM), log.FieldNames(log.KindNIC)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if slices.Contains(lookupOptions, name) {
			continue
		}
		path := strings.Split(name, ".")
		ofNIC := len(path) == 3 && path[0] == "nics" && slices.Contains(nicFields, path[2])
		if ofNIC && path[1] != "*" {
			_, err := strconv.ParseUint(path[1], 10, 16)
			ofNIC = err == nil
		}
		if !ofNIC && !slices.Contains(vmFields, name) {
			return nil, rest.BadParameter(name, log.ElementUnknown, "use nics.*.FIELD of a NIC, or one of: "+strings.Join(vmFields, ", "), "a VM has no field %q", name)
		}
		for _, value := range values[name] {
			c := condition{path: path, value: value}
			if pattern, is := strings.CutPrefix(value, "~"); is {
				if len(pattern) > maxPattern {
					return nil, rest.BadParameter(name, log.ElementInvalid, "send a shorter pattern", "the pattern has %d bytes, over %d", len(pattern), maxPattern)
				}
				if c.pattern, err = regexp.Compile(pattern); err != nil {
					return nil, rest.BadParameter(name, log.ElementInvalid, "send a regular expression of RE2, or leave out the ~", "%v", err)
				}
			}
			all = append(all, c)
		}
	}
	if len(all) > maxConditions {
		return nil, rest.BadParameter("query", log.ElementInvalid, "send fewer", "%d conditions, over %d", len(all), maxConditions)
	}
	return all, nil
}

func lookupFields(p rest.Parameters) ([]string, error) {
	if !p.Has("fields") {
		return nil, nil
	}
	fields := strings.Split(p.Text("fields"), ",")
	for _, name := range fields {
		if !slices.Contains(log.FieldNames(log.KindVM), name) {
			return nil, rest.BadParameter("fields", log.ElementUnknown, "use some of: "+strings.Join(log.FieldNames(log.KindVM), ", "), "a VM has no field %q", name)
		}
	}
	return fields, nil
}

// lookupCandidates is InSlices over the VMs that can match, by an index if there is
// one.
func (o *objectRoutes) lookupCandidates(w http.ResponseWriter, r *http.Request, p rest.Parameters, look func(*projections.State, projections.Record), more func() bool) error {
	walk := projections.Walk{Kind: log.KindVM}
	if cn, err := log.ParseUUID(p.Text("server_uuid")); err == nil {
		walk.CN = cn
	} else if id, err := log.ParseUUID(p.Text("uuid")); err == nil {
		err := o.read.ViewAt(w, r, p, lookupPart(p), func(state *projections.State) {
			if rec, ok := state.Get(log.KindVM, id.String()); ok {
				look(state, rec)
			}
		})
		more()
		return err
	}
	return o.read.InSlices(w, r, p, lookupPart(p), walk, look, more)
}

// candidate is a VM with what conditions can be about, all of one state. Its fields are
// made after the view of the state.
type candidate struct {
	vm   *log.VM
	nics []log.Object
}

func candidateOf(state *projections.State, vm *log.VM, withNICs bool) candidate {
	c := candidate{vm: vmForm(state, vm)}
	if withNICs {
		for rec := range state.NICsOf(vm.UUID) {
			c.nics = append(c.nics, rec.Object)
		}
	}
	return c
}

// lookupPart returns which part of a past state lookupCandidates and candidateOf read.
func lookupPart(p rest.Parameters) backend.PastPart {
	names := []string{"uuid", "server_uuid", "owner_uuid"}
	for name := range p.Values() {
		if strings.HasPrefix(name, "nics.") {
			names = names[:1] // only a named VM comes with its NICs
		}
	}
	for _, name := range names {
		if values := p.Values()[name]; len(values) == 1 && !strings.HasPrefix(values[0], "~") {
			return partMentioning(values[0])
		}
	}
	return backend.PastPart{Whole: true}
}

// match returns the VM's fields if all conditions hold.
func (v *candidate) match(conditions []condition) (fields map[string]json.RawMessage, all bool) {
	fields = fieldsOf(v.vm)
	var nics []map[string]json.RawMessage
	for i := range conditions {
		c := &conditions[i]
		if len(c.path) == 1 {
			if !c.holds(textOf(fields[c.path[0]])) {
				return nil, false
			}
			continue
		}
		if nics == nil {
			for _, nic := range v.nics {
				nics = append(nics, fieldsOf(nic))
			}
		}
		at, err := strconv.Atoi(c.path[1])
		matched := false
		for n, nic := range nics {
			matched = matched || (err != nil || n == at) && c.holds(textOf(nic[c.path[2]]))
		}
		if !matched {
			return nil, false
		}
	}
	return fields, true
}

// fieldsOf returns the JSON fields of an object.
func fieldsOf(o log.Object) (fields map[string]json.RawMessage) {
	b, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(b, &fields)
	}
	if err != nil {
		panic("api: an object has no JSON form: " + err.Error()) // every object of the log has one
	}
	return fields
}

// textOf returns a value in readable form: a string without its quotes, "" for no
// value.
func textOf(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

func part(all map[string]json.RawMessage, fields []string) map[string]json.RawMessage {
	if fields == nil {
		return all
	}
	some := make(map[string]json.RawMessage, len(fields))
	for _, name := range fields {
		if value, ok := all[name]; ok {
			some[name] = value
		}
	}
	return some
}

// updateVM answers PUT and POST /vms/ID under the rule of package vmrule. It refuses
// fields that NICs take from their networks. Changes of NICs become operations of the
// same change.
func (o *objectRoutes) updateVM(w http.ResponseWriter, r *http.Request, k *kindRoute, id string, op log.Op) error {
	if _, err := rest.Query(r, nodes.Waiting...); err != nil {
		return err
	}
	if noted, err := rest.NoteContent(r); err == nil { // else readBody returns the error
		r = noted
	}
	body, err := rest.ReadBody(r)
	if err != nil {
		return err
	}
	var rule vmrule.VM
	vm := &log.VM{} // a VM that does not exist
	o.store.View(func(state *projections.State, _ log.Cursor) {
		// Nor is known of a VM that the client may not see. Else an error about the
		// body would reveal its NICs and their networks.
		known := log.UUID{}
		if rec, there := state.Get(k.kind, id); there && guard.GrantOf(r).Knows(state, rec.Object) {
			vm, known = rec.Object.(*log.VM), uuidOf(id)
		}
		rule = vmapi.RuleOf(state, known)
	})
	u, err := vmrule.Check(body, rule)
	var refusal *log.Refusal
	if errors.As(err, &refusal) && refusal.Errors[0].Field != vmrule.FieldBody {
		return refusal
	}
	if vm.State == "provisioning" && !reports(u) {
		return rest.Fail(http.StatusConflict, vmapi.CodeUnallocated, "wait until it runs or is stopped", vmapi.MessageUnallocated)
	}
	ops := vmapi.Ops(u)
	task, failed := vmapi.Task(vm, u, nil)
	if failed != nil {
		return failed
	}
	// A change only of NICs keeps the condition on the VM, if there is one.
	if err != nil || len(u.Rest) > 0 || len(ops) == 0 || op.IfMatch != 0 {
		if err == nil {
			if body, err = json.Marshal(u.Rest); err != nil {
				return err
			}
		}
		object, set, err := log.ParseObject(k.kind, body)
		if err != nil {
			return err
		}
		op.Action, op.Kind, op.ID, op.Set, op.Object = log.Update, k.kind, id, set, object
		ops = append(ops, op)
	}
	ops = append(ops, task...)
	change, err := o.write.ChangeID(r)
	if err != nil {
		return err
	}
	c := &log.Change{ID: change, Ops: ops, Content: rest.ContentOf(r)}
	if _, err := o.write.Propose(w, r, c); err != nil {
		return err
	}
	return o.answerObject(w, r, rest.Parameters{}, k, id)
}

// ofReports are the fields of a VM with its state and location.
var ofReports = []string{"last_modified", "server_uuid", "state", "zone_state"}

// reports tells an update that reports a VM's state from one that changes the VM.
func reports(u vmrule.Update) bool {
	for name := range u.Rest {
		if !slices.Contains(ofReports, name) {
			return false
		}
	}
	return len(u.NICs) == 0
}
