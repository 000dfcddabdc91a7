package lying

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"rutter/log"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// nothing and noMAC are an id and a MAC that nothing has.
var (
	nothing = id(0xfffe)
	noMAC   = mac(0x9999)
	noIP    = address("100.64.77.77") // of no network
)

// tokens are what a refusal may name others' things by: UUIDs, MACs and addresses.
func tokens(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool {
			return (r < '0' || r > '9') && (r < 'a' || r > 'f') && r != '-' && r != ':' && r != '.'
		}) {
			word = strings.Trim(word, ":.-")
			names := len(word) == 36 && strings.Count(word, "-") == 4 || len(word) == 17 && strings.Count(word, ":") == 5 || strings.Count(word, ".") == 3
			if names && !yield(word) {
				return
			}
		}
	}
}

// told judges a refusal that the liar got: it says nothing of others, and the same of
// what another has and of what there is not.
func (j *judge) told(w *world, by log.Author, ops []log.Op, refusal *log.Refusal) *breach {
	text := asJSON(refusal)
	sent, seen := "", ""
	for token := range tokens(text) {
		if sent == "" {
			sent = liar.String()
			for i := range ops {
				sent += " " + ops[i].ID + " " + asJSON(ops[i].Object)
			}
		}
		if strings.Trim(token, "0:-.") == "" || contains(sent, token) {
			continue
		}
		if seen == "" {
			seen = j.seen(w)
		}
		if !contains(seen, token) {
			return breachf("a refusal tells of others", "%s in %s", token, text)
		}
	}
	for _, other := range j.foreign(w, ops) {
		twin := make([]log.Op, len(ops))
		own := false // another's id is the new object's own
		for i := range ops {
			twin[i] = swapped(ops[i], other)
			own = own || ops[i].Action == log.Create && ops[i].Object.ID() == other.text()
		}
		_, refused := w.weigh(by, twin)
		if refused == nil {
			if !own {
				return breachf("a refusal tells that it exists", "%s: %s, and with one that does not exist it is accepted", other.text(), text)
			}
			continue
		}
		if again := strings.ReplaceAll(asJSON(refused), other.none(), other.text()); again != text && !own {
			return breachf("a refusal tells that it exists", "%s:\n      %s\n      of one that does not exist:\n      %s", other.text(), text, again)
		}
	}
	return nil
}

// seen is all that the liar is sent, as text.
func (j *judge) seen(w *world) string {
	var b strings.Builder
	for _, scope := range w.state.Interest(liar) {
		for r := range w.state.InScope(scope) {
			b.WriteString(asJSON(r.Object))
		}
	}
	// What is of its own VMs may be named, wherever it is.
	for r := range w.state.VMsOn(liar) {
		for m := range w.state.VMMsOf(r.Object.(*log.VM).UUID) {
			b.WriteString(asJSON(m.Object))
		}
		for n := range w.state.NICsOf(r.Object.(*log.VM).UUID) {
			b.WriteString(asJSON(n.Object))
		}
	}
	return b.String()
}

// thing is a UUID, a MAC, or the address on a network, that an operation names.
type thing struct {
	uuid log.UUID
	mac  log.MAC
	ip   netip.Addr
}

func (n thing) text() string {
	switch {
	case n.ip.IsValid():
		return n.ip.String()
	case n.uuid.IsZero():
		return n.mac.String()
	}
	return n.uuid.String()
}

// none is another of its sort, which there is not.
func (n thing) none() string {
	switch {
	case n.ip.IsValid():
		return noIP.String()
	case n.uuid.IsZero():
		return noMAC.String()
	}
	return nothing.String()
}

// foreign are the things that operations name, that there are, and that the liar is not
// sent.
func (j *judge) foreign(w *world, ops []log.Op) (things []thing) {
	if j.before == nil {
		j.before = look(w.state)
	}
	add := func(n thing) {
		for _, other := range things {
			if other == n {
				return
			}
		}
		if j.hidden(w, n) {
			things = append(things, n)
		}
	}
	for i := range ops {
		op := &ops[i]
		if u, err := log.ParseUUID(op.ID); err == nil {
			add(thing{uuid: u})
		}
		if m, err := log.ParseMAC(op.ID); err == nil {
			add(thing{mac: m})
		}
		if op.Object == nil {
			continue
		}
		for _, u := range uuidsOf(op.Object) {
			add(thing{uuid: *u})
		}
		if a, ok := op.Object.(*log.Aggregation); ok {
			for _, m := range a.MACs {
				add(thing{mac: m})
			}
		}
		n, ok := op.Object.(*log.NIC)
		if ok && !n.MAC.IsZero() {
			add(thing{mac: n.MAC})
		}
		if ok && n.IP.IsValid() && n.NetworkUUID.IsZero() && n.IP.Is4() {
			add(thing{ip: n.IP})
		}
	}
	return things
}

// hidden reports whether there is something of that name, none of which the liar is sent.
func (j *judge) hidden(w *world, n thing) bool {
	there := false
	if n.ip.IsValid() {
		for r := range w.state.List(log.KindNetwork) {
			if net := r.Object.(*log.Network); net.Subnet.Contains(n.ip) {
				there = true
				if slices.Contains(j.before.interest[liar], scopeOf(net)) || j.knows(w, net) {
					return false
				}
			}
		}
		return there
	}
	if _, given := j.given[n.uuid]; given {
		return false // it is for the liar to know
	}
	if nic := w.nic(n.mac); nic != nil && n.uuid.IsZero() && j.ofItsVM(w, nic) {
		return false
	}
	for _, kind := range []log.Kind{log.KindServer, log.KindNetwork, log.KindNetworkPool, log.KindVM, log.KindVMM, log.KindMigration, log.KindTask, log.KindRouter, log.KindNIC} {
		o := w.object(kind, n.text())
		if (kind == log.KindNIC) != n.uuid.IsZero() || o == nil {
			continue
		}
		net, ok := o.(*log.Network)
		if j.before.sees[key(o)] || mine(o, w.sled) || w.sideOf(o) || ok && j.knows(w, net) || j.knowsPool(w, o) {
			return false
		}
		there = true
	}
	return there
}

// knowsPool reports whether an object is a pool that has a network which the liar is sent,
// or which is for it to know: it may ask for an address of the pool.
func (j *judge) knowsPool(w *world, o log.Object) bool {
	p, ok := o.(*log.NetworkPool)
	return ok && slices.ContainsFunc(p.Networks, func(id log.UUID) bool {
		net, ok := w.object(log.KindNetwork, id.String()).(*log.Network)
		return ok && (slices.Contains(j.before.interest[liar], scopeOf(net)) || j.knows(w, net))
	})
}

// ofItsVM reports whether a NIC is of a VM that is on the liar, or was given to it.
func (j *judge) ofItsVM(w *world, nic *log.NIC) bool {
	vm := w.vm(nic.BelongsToUUID)
	_, given := j.given[nic.BelongsToUUID]
	return given || vm != nil && vm.ServerUUID == liar
}

// knows reports whether a network is for the liar to know although it is not sent it: the
// admin network, one that is open to all nodes, and those of NICs of its VMs.
func (j *judge) knows(w *world, net *log.Network) bool {
	if net.NICTag == "admin" && !net.Fabric || opened(w, net) == log.SelfProvisionAny {
		return true
	}
	for r := range w.state.NICsOn(net.UUID) {
		if j.ofItsVM(w, r.Object.(*log.NIC)) {
			return true
		}
	}
	return false
}

// uuidsOf are the fields of an object that name others.
func uuidsOf(o log.Object) []*log.UUID {
	switch o := o.(type) {
	case *log.Server:
		return []*log.UUID{&o.UUID}
	case *log.VM:
		return []*log.UUID{&o.UUID, &o.ServerUUID}
	case *log.NIC:
		return []*log.UUID{&o.BelongsToUUID, &o.NetworkUUID, &o.CNUUID}
	case *log.VMM:
		return []*log.UUID{&o.UUID, &o.InstanceID, &o.SledID}
	case *log.Migration:
		return []*log.UUID{&o.UUID, &o.InstanceID, &o.SourceVMM, &o.TargetVMM}
	case *log.Task:
		return []*log.UUID{&o.UUID, &o.ServerUUID}
	case *log.Aggregation:
		return []*log.UUID{&o.BelongsToUUID}
	}
	return nil
}

// swapped is an operation that names what there is not in the place of n.
func swapped(op log.Op, n thing) log.Op {
	op.ID = strings.ReplaceAll(op.ID, n.text(), n.none())
	if op.Object == nil {
		return op
	}
	op.Object = log.Clone(op.Object)
	for _, u := range uuidsOf(op.Object) {
		if *u == n.uuid && !n.uuid.IsZero() {
			*u = nothing
		}
	}
	nic, ok := op.Object.(*log.NIC)
	if ok && nic.MAC == n.mac && !n.mac.IsZero() {
		nic.MAC = noMAC
	}
	if ok && n.ip.IsValid() && nic.IP == n.ip {
		nic.IP = noIP
	}
	if a, ok := op.Object.(*log.Aggregation); ok {
		for i, m := range a.MACs {
			if m == n.mac {
				a.MACs[i] = noMAC
			}
		}
	}
	return op
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func show(o log.Object) string {
	if o == nil {
		return "nothing"
	}
	return o.Kind().String() + " " + short(asJSON(o))
}

// short writes the world's UUIDs as changetest does: #21#.
func short(text string) string {
	return worldIDs.ReplaceAllStringFunc(text, func(u string) string {
		n, _ := strconv.ParseUint(u[len(u)-4:], 16, 64)
		return fmt.Sprintf("#%d#", n)
	})
}

var worldIDs = regexp.MustCompile(`0{8}(-0{4}){3}-0{8}[0-9a-f]{4}`)

// showAll is the operations in the manner of changetest.Op.
func showAll(ops []log.Op) string {
	lines := make([]string, len(ops))
	for i, op := range ops {
		text := op.Action.String() + " " + op.Kind.String()
		if op.ID != "" {
			text += " " + op.ID
		}
		if op.Object != nil && op.Action != log.Delete {
			var fields map[string]json.RawMessage
			_ = json.Unmarshal([]byte(asJSON(op.Object)), &fields)
			set := make(map[string]json.RawMessage)
			for _, name := range op.Set {
				set[name] = fields[name]
			}
			text += " " + asJSON(set)
		}
		for _, o := range op.Options {
			text += " " + string(o)
		}
		lines[i] = text
	}
	return strings.Join(lines, "; ")
}
