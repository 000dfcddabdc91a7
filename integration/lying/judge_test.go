package lying

import (
	"fmt"
	"net/netip"
	"slices"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
	"rutter/projections/rules"
)

// breach is what the CN that lies did beyond itself: of which sort, and the case.
type breach struct{ sort, what string }

func breachf(sort, format string, args ...any) *breach {
	return &breach{sort, fmt.Sprintf(format, args...)}
}

// judge knows what operators gave to the liar, and says of each of its steps whether it
// stayed within that. It asks the state what there is, and never the rules.
type judge struct {
	// given are VMs that an operator gave to the liar and that are not on it yet, each
	// with the VMM or task by which it was given.
	given map[log.UUID]log.UUID
	// placed are the VMMs that operators registered on the liar.
	placed map[log.UUID]bool
	// before is what the others had when the last step ended; nil: not looked at yet.
	before *view
}

func newJudge(w *world) *judge {
	j := &judge{given: make(map[log.UUID]log.UUID), placed: make(map[log.UUID]bool)}
	for _, kind := range []log.Kind{log.KindVMM, log.KindTask} {
		for r := range w.state.List(kind) {
			j.note(w, r.Object)
		}
	}
	return j
}

// note takes up what an operator made or changed.
func (j *judge) note(w *world, o log.Object) {
	j.before = nil
	switch o := o.(type) {
	case *log.VMM:
		if vm := w.vm(o.InstanceID); o.SledID == liar && !ended(o) {
			if j.placed[o.UUID] = true; vm == nil || vm.ServerUUID != liar {
				j.given[o.InstanceID] = o.UUID
			}
		}
	case *log.VM:
		for r := range w.state.VMMsOf(o.UUID) {
			// A VM that was taken off its CN is where its VMM was placed.
			if m := r.Object.(*log.VMM); o.ServerUUID.IsZero() && j.placed[m.UUID] && m.SledID == liar && !ended(m) {
				j.given[o.UUID] = m.UUID
			}
		}
	case *log.Task:
		if vm := createdBy(o); !vm.IsZero() && o.ServerUUID == liar {
			j.given[vm] = o.UUID
		}
	}
}

// createdBy is the VM that a task of an operator makes.
func createdBy(t *log.Task) log.UUID {
	for _, vm := range anyVM {
		if t.Task == "machine_create" && len(t.Params) > 0 && contains(t.Params, vm.String()) {
			return vm
		}
	}
	return log.UUID{}
}

// settle forgets what was given and has come, or was taken back: what is on the liar once,
// and is placed elsewhere then, is not the liar's to take again.
func (j *judge) settle(w *world) {
	for vm, by := range j.given {
		m := w.vm(vm)
		held := w.vmm(by)
		task, _ := w.object(log.KindTask, by.String()).(*log.Task)
		gone := held == nil && task == nil || held != nil && (ended(held) || held.SledID != liar)
		if gone || m != nil && m.ServerUUID == liar {
			delete(j.given, vm)
		}
	}
}

func ended(m *log.VMM) bool {
	return m.State == "destroyed" || m.State == "failed" || m.State == "saga_unwound"
}

// mine reports whether an object is on the liar, or is the liar.
func mine(o log.Object, sled func(vmm log.UUID) log.UUID) bool {
	switch o := o.(type) {
	case *log.Server:
		return o.UUID == liar
	case *log.VM:
		return o.ServerUUID == liar
	case *log.NIC:
		return projections.CNOf(o) == liar
	case *log.VMM:
		return o.SledID == liar
	case *log.Aggregation:
		return o.BelongsToUUID == liar
	case *log.Task:
		return o.ServerUUID == liar
	case *log.Migration:
		return sled(o.SourceVMM) == liar || sled(o.TargetVMM) == liar
	}
	return false
}

// view is what others have, and what the liar sees.
type view struct {
	links    map[log.UUID]desired.Links
	interest map[log.UUID][]log.Scope // of all CNs
	sees     map[string]bool          // ids of objects that the liar is sent
	// fits is the largest MTU that the rules allow a network of a vnet, where the liar has
	// no part.
	fits map[uint32]uint32
}

func look(s *projections.State) *view {
	v := &view{links: make(map[log.UUID]desired.Links), interest: make(map[log.UUID][]log.Scope), sees: make(map[string]bool), fits: make(map[uint32]uint32)}
	for _, cn := range cns {
		v.interest[cn] = s.Interest(cn)
		if cn != liar {
			v.links[cn] = desired.Of(s, cn)
		}
	}
	for _, vnet := range []uint32{10, 20, 30} {
		if !slices.Contains(v.interest[liar], log.VNetScope(vnet)) {
			v.fits[vnet] = fitsOn(s, vnet)
		}
	}
	for _, scope := range v.interest[liar] {
		for r := range s.InScope(scope) {
			v.sees[key(r.Object)] = true
		}
	}
	return v
}

// fitsOn is the MTU that a new network of a vnet gets of 9000 where the setting is clamp; 0
// if it is refused.
func fitsOn(s *projections.State, vnet uint32) uint32 {
	c := &log.Change{ID: log.UUID{6: 0x70, 8: 0x80, 15: 9}, Actor: "test", Ops: []log.Op{
		{Action: log.Create, Kind: log.KindSetting, Object: &log.Setting{Name: rules.SettingFabricMTU, Value: log.FabricMTUClamp}},
		{Action: log.Create, Kind: log.KindNetwork, Object: &log.Network{UUID: id(99), Name: "new", NICTag: "overlay", VLANID: 9, Subnet: netip.MustParsePrefix("10.250.0.0/24"), OwnerUUIDs: ids(2, 2), Fabric: true, VNetID: vnet, MTU: 9000}},
	}}
	if _, there := s.Get(log.KindSetting, rules.SettingFabricMTU); there {
		c.Ops = c.Ops[1:]
	}
	events, _ := rules.Decide(s, c)
	for _, e := range events {
		if n, ok := e.Object.(*log.Network); ok {
			return n.MTU
		}
	}
	return 0
}

func key(o log.Object) string { return o.Kind().String() + " " + o.ID() }

// changed is one object before and after a step; either may be nil.
type changed struct{ was, is log.Object }

// judge applies the events of a step of the liar, and returns what is wrong with it, or nil.
func (j *judge) judge(w *world, events []*log.Event) *breach {
	if len(events) == 0 {
		return nil
	}
	if j.before == nil {
		j.before = look(w.state)
	}
	sleds := make(map[log.UUID]log.UUID)
	for r := range w.state.List(log.KindVMM) {
		m := r.Object.(*log.VMM)
		sleds[m.UUID] = m.SledID
	}
	var net []changed
	named := make(map[string]int)
	for _, e := range events {
		k := e.Kind.String() + " " + e.ID
		if _, is := named[k]; !is {
			named[k] = len(net)
			net = append(net, changed{was: w.object(e.Kind, e.ID)})
		}
	}
	f := &finding{judge: j, w: w, sled: func(vmm log.UUID) log.UUID { return sleds[vmm] }, was: make(map[string]log.Object)}
	for _, kind := range []log.Kind{log.KindVM, log.KindNIC, log.KindVMM} {
		for r := range w.state.List(kind) {
			f.was[key(r.Object)] = r.Object
		}
	}
	w.apply(events)
	for _, e := range events {
		net[named[e.Kind.String()+" "+e.ID]].is = w.object(e.Kind, e.ID)
	}
	for _, c := range net {
		if b := f.object(c); b != nil {
			return b
		}
	}
	after := look(w.state)
	if b := f.compare(j.before, after); b != nil {
		return b
	}
	j.before = after
	return nil
}

// finding judges one step, whose events are applied.
type finding struct {
	*judge
	w    *world
	sled func(log.UUID) log.UUID
	was  map[string]log.Object // VMs, NICs and VMMs before the step
	// macs are NICs that are the liar's, before or after: others' entries of these may
	// come and go.
	macs map[log.MAC]bool
}

func (f *finding) vmBefore(u log.UUID) *log.VM {
	m, _ := f.was["vm "+u.String()].(*log.VM)
	return m
}

// vmIsMine reports whether a VM was the liar's, or is now by right.
func (f *finding) vmIsMine(u log.UUID) bool {
	if before := f.vmBefore(u); before != nil && before.ServerUUID == liar {
		return true
	}
	now := f.w.vm(u)
	if now == nil || now.ServerUUID != liar {
		return false
	}
	_, given := f.given[u]
	return given || f.vmBefore(u) == nil && f.mentioned(u) == nil
}

// came reports whether a VM came to the liar by right in this step.
func (f *finding) came(u log.UUID) bool {
	before := f.vmBefore(u)
	return (before == nil || before.ServerUUID != liar) && f.vmIsMine(u)
}

// mentioned is an object of another that named a VM before the step, or nil.
func (f *finding) mentioned(vm log.UUID) log.Object {
	for _, o := range f.was {
		named := false
		switch o := o.(type) {
		case *log.NIC:
			named = o.BelongsToUUID == vm
		case *log.VMM:
			named = o.InstanceID == vm
		}
		if named && !mine(o, f.sled) {
			return o
		}
	}
	return nil
}

func (f *finding) object(c changed) *breach {
	switch {
	case c.was == nil && c.is == nil: // made and deleted by one change
		return nil
	case c.was == nil:
		return f.made(c.is)
	case mine(c.was, f.sled):
		return f.changed(c.was, c.is)
	}
	return f.taken(c.was, c.is)
}

// taken judges a change of what was not the liar's.
func (f *finding) taken(was, is log.Object) *breach {
	switch is := is.(type) {
	case *log.VM:
		if _, given := f.given[is.UUID]; given && is.ServerUUID == liar {
			return nil
		}
	case *log.NIC:
		_, given := f.given[is.BelongsToUUID]
		if (given || f.vmIsMine(is.BelongsToUUID)) && is.BelongsToType == "zone" && is.CNUUID == liar && sameAddress(was.(*log.NIC), is) {
			return nil
		}
	case *log.VMM: // its VM came to the liar, so that it claims nothing any more
		was := *was.(*log.VMM)
		was.Placed = false
		if f.came(is.InstanceID) && log.Equal(&was, is) {
			return nil
		}
	case *log.Router: // likewise: it is where its VM is
		was := *was.(*log.Router)
		was.CNUUID = liar
		if f.came(is.VMUUID) && log.Equal(&was, is) {
			return nil
		}
	case *log.Migration:
		if _, given := f.given[is.InstanceID]; given || f.vmIsMine(is.InstanceID) {
			return f.sides(was.(*log.Migration), is)
		}
	case nil:
		if nic, ok := was.(*log.NIC); ok && nic.BelongsToType == "zone" {
			if vm := f.vmBefore(nic.BelongsToUUID); vm != nil && vm.ServerUUID == liar {
				return nil // its VM is the liar's, and has no such NIC any more
			}
		}
	}
	return breachf("another's "+was.Kind().String()+" changed", "%s became %s", show(was), show(is))
}

func sameAddress(a, b *log.NIC) bool {
	return a.IP == b.IP && a.NetworkUUID == b.NetworkUUID && a.MAC == b.MAC && a.BelongsToUUID == b.BelongsToUUID && a.OwnerUUID == b.OwnerUUID
}

// made judges a new object.
func (f *finding) made(o log.Object) *breach {
	wrong := func(why string) *breach { return breachf("made: "+why, "%s", show(o)) }
	if !mine(o, f.sled) && o.Kind() != log.KindVMM || o.Kind() == log.KindTask {
		return wrong("a " + o.Kind().String() + " that is not its own")
	}
	switch o := o.(type) {
	case *log.VM:
		if !f.vmIsMine(o.UUID) {
			return wrong("a vm that another's " + f.mentioned(o.UUID).Kind().String() + " names")
		}
	case *log.VMM:
		if o.SledID != liar {
			return wrong("a vmm of another")
		}
		if _, given := f.given[o.InstanceID]; !given && !f.vmIsMine(o.InstanceID) {
			return wrong("a vmm of a vm that it was not given")
		}
	case *log.Migration:
		if _, given := f.given[o.InstanceID]; !given && !f.vmIsMine(o.InstanceID) {
			return wrong("a migration of a vm that it was not given")
		}
	case *log.NIC:
		return f.nicMade(o)
	}
	return nil
}

// nicMade judges a new NIC, or one that went to another network or address.
func (f *finding) nicMade(n *log.NIC) *breach {
	wrong := func(why string) *breach { return breachf("nic: "+why, "%s", show(n)) }
	host := n.BelongsToType == "server"
	if !host && (n.BelongsToType != "zone" || !f.vmIsMine(n.BelongsToUUID)) {
		return wrong("of a vm that is not its own")
	}
	if n.Underlay {
		return wrong("that carries VXLAN")
	}
	if n.NetworkUUID.IsZero() {
		return nil
	}
	net := f.w.state.Network(n.NetworkUUID)
	held := slices.Contains(f.before.interest[liar], scopeOf(net))
	switch open := opened(f.w, net); {
	case host && net.NICTag == "admin" && !net.Fabric:
	case open == log.SelfProvisionAny:
	case open != log.SelfProvisionJoined:
		return wrong("on a network that is not opened to nodes")
	case !held:
		return wrong("on a network that it has no part in")
	}
	return f.addressTaken(n, net, host)
}

// opened is to whom operators opened a network, for NICs that nodes make.
func opened(w *world, net *log.Network) string {
	setting, _ := w.object(log.KindSetting, fabricSetting).(*log.Setting)
	switch {
	case net.SelfProvision != "":
		return net.SelfProvision
	case !net.Fabric:
		return log.SelfProvisionJoined
	case setting != nil:
		return setting.Value
	}
	return log.SelfProvisionOff
}

// fabricSetting opens all fabrics.
const fabricSetting = rules.SettingFabricSelfProvision

func (f *finding) addressTaken(n *log.NIC, net *log.Network, host bool) *breach {
	wrong := func(why string) *breach { return breachf("address: "+why, "%s", show(n)) }
	kept, _ := f.w.object(log.KindIP, log.IPID(net.UUID, n.IP)).(*log.IP)
	switch {
	case n.IP == net.Gateway:
		return wrong("a gateway's")
	case slices.Contains(net.Resolvers, n.IP):
		return wrong("a resolver's")
	case kept != nil:
		return wrong("one that is reserved")
	case !host && (n.IP.Less(net.ProvisionStart) || net.ProvisionEnd.Less(n.IP)):
		return wrong("outside of the network's range")
	}
	return nil
}

func scopeOf(n *log.Network) log.Scope {
	if n.Fabric {
		return log.VNetScope(n.VNetID)
	}
	return log.NetworkScope(n.UUID)
}

// changed judges a change of what was the liar's; is is nil if it was deleted.
func (f *finding) changed(was, is log.Object) *breach {
	if is == nil {
		return nil
	}
	switch is := is.(type) {
	case *log.VM:
		if is.ServerUUID != liar && !is.ServerUUID.IsZero() {
			return breachf("a vm given to another", "%s", show(is))
		}
	case *log.NIC:
		return f.nicChanged(was.(*log.NIC), is)
	case *log.Migration:
		return f.sides(was.(*log.Migration), is)
	case *log.VMM:
		if was := was.(*log.VMM); is.SledID != liar || is.InstanceID != was.InstanceID {
			return breachf("a vmm of another vm", "%s", show(is))
		}
	case *log.Server:
		if was := was.(*log.Server); is.AdminIP != was.AdminIP || is.AgentPort != was.AgentPort {
			return breachf("where servers post to", "%s", show(is))
		}
	}
	return nil
}

func (f *finding) nicChanged(was, is *log.NIC) *breach {
	switch {
	case is.CNUUID != liar:
		return breachf("a nic given to another", "%s", show(is))
	case is.BelongsToUUID != was.BelongsToUUID || is.BelongsToType != was.BelongsToType || is.OwnerUUID != was.OwnerUUID || is.Underlay != was.Underlay:
		return breachf("a nic of something else", "%s became %s", show(was), show(is))
	case is.NetworkUUID != was.NetworkUUID, is.IP != was.IP:
		if was.Underlay {
			return breachf("its own VTEP moved", "%s became %s", show(was), show(is))
		}
		return f.nicMade(is)
	}
	return nil
}

// sides: of a migration, only the liar's side is the liar's.
func (f *finding) sides(was, is *log.Migration) *breach {
	source := was.SourceVMM == is.SourceVMM && was.SourceState == is.SourceState && was.SourceGen == is.SourceGen
	target := was.TargetVMM == is.TargetVMM && was.TargetState == is.TargetState && was.TargetGen == is.TargetGen
	if !source && f.sled(is.SourceVMM) != liar || !target && f.sled(is.TargetVMM) != liar || is.InstanceID != was.InstanceID {
		return breachf("another's side of a migration", "%s became %s", show(was), show(is))
	}
	return nil
}
