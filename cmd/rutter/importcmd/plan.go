package importcmd

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"rutter/log"
	"rutter/projections"
	"rutter/projections/rules"
)

// maxPasses bounds the tries of refused records. They are tried again after other
// records succeeded, which may have been the reason for the refusal.
const maxPasses = 16

// step is one operation of a plan.
type step struct {
	op log.Op
	// group is the position of the step. Steps of one group depend only on steps of
	// lower groups.
	group   int
	changed []log.FieldChange // of an update
	after   log.Object        // the object after the step
	from    string
}

// tally counts the objects of a kind.
type tally struct {
	Create int `json:"create"`
	Change int `json:"change"`
	Leave  int `json:"leave"` // are equal already
	Refuse int `json:"refuse"`
	Here   int `json:"here"` // exist in Rutter only, and stay
}

// plan is the list of steps.
type plan struct {
	steps    []step
	tallies  map[log.Kind]*tally
	problems []problem
	// state is the state of the servers after the plan.
	state *projections.State

	in      *installation
	seq     log.Seq
	tried   uint64
	group   int
	routers map[string]bool // ids of the addresses that routers have
}

// makePlan compares an installation with the state of the servers at seq. It applies
// the steps to that state.
func makePlan(in *installation, state *projections.State, seq log.Seq) *plan {
	p := &plan{
		state: state, in: in, seq: seq, problems: slices.Clone(in.problems), tallies: make(map[log.Kind]*tally),
		routers: make(map[string]bool),
	}
	for _, kind := range order {
		p.tallies[kind] = new(tally)
		slices.SortFunc(in.records[kind], func(a, b record) int { return cmp.Compare(a.object.ID(), b.object.ID()) })
	}
	for _, problem := range in.problems {
		if kind, err := log.ParseKind(problem.Kind); err == nil && problem.Left && p.tallies[kind] != nil {
			p.tallies[kind].Refuse++
		}
	}
	p.countHere()
	p.readRouters()
	p.settleNICs()
	p.settleVLANs()
	p.run()
	return p
}

// countHere counts the objects that only the servers have.
func (p *plan) countHere() {
	for _, kind := range order {
		both := 0
		for _, r := range p.in.records[kind] {
			if _, there := p.state.Get(kind, r.object.ID()); there {
				both++
			}
		}
		p.tallies[kind].Here = p.state.Count(kind) - both
	}
}

// refused is a record that was not accepted, and why.
type refused struct {
	r       record
	refusal *log.Refusal
}

// run plans every record. It plans refused ones again until no further one succeeds.
func (p *plan) run() {
	left := make(map[log.Kind][]refused)
	for _, kind := range order {
		for _, r := range p.in.records[kind] {
			left[kind] = append(left[kind], refused{r: r})
		}
	}
	for range maxPasses {
		moved := false
		for _, kind := range order {
			updates, creates := p.part(left[kind])
			var again []refused
			for _, all := range [][]refused{updates, creates} {
				p.group++
				for _, one := range all {
					if one.refusal = p.try(one.r); one.refusal != nil {
						again = append(again, one)
					} else {
						moved = true
					}
				}
			}
			left[kind] = again
		}
		if !moved {
			break
		}
	}
	p.noteGateways()
	for _, kind := range order {
		for _, one := range left[kind] {
			p.tallies[kind].Refuse++
			p.problems = append(p.problems, problemsOf(one.refusal, kind, one.r.object.ID(), one.r.from)...)
		}
	}
}

// part divides records into those that the servers have and new ones. The first are
// planned first, because their update may free an address that a new one needs.
func (p *plan) part(all []refused) (updates, creates []refused) {
	for _, one := range all {
		if _, there := p.state.Find(one.r.object); there {
			updates = append(updates, one)
		} else {
			creates = append(creates, one)
		}
	}
	return updates, creates
}

// try plans one record, and counts it if it is accepted.
func (p *plan) try(r record) *log.Refusal {
	kind := r.object.Kind()
	op, needed := p.opOf(r)
	if !needed {
		p.tallies[kind].Leave++
		return nil
	}
	p.tried++
	change := log.UUID{15: 1}
	binary.BigEndian.PutUint64(change[:], p.tried) // missing UUIDs are derived from it
	events, result := rules.Decide(p.state, &log.Change{ID: change, Time: p.state.Time(), Ops: []log.Op{op}})
	if result.Refusal != nil {
		return result.Refusal
	}
	s := step{op: op, group: p.group, after: r.object, from: r.from}
	made := false
	for _, e := range events {
		p.seq++
		if _, err := p.state.Apply(p.seq, e); err != nil {
			return &log.Refusal{Code: log.CodeInvalidParameters, Message: err.Error()}
		}
		if e.Kind == kind && e.ID == r.object.ID() {
			s.changed, s.after, made = e.Changed, e.Object, e.Action == log.Create
		}
	}
	switch {
	case len(events) == 0:
		p.tallies[kind].Leave++
		return nil
	case made:
		p.tallies[kind].Create++
	default:
		p.tallies[kind].Change++
	}
	p.steps = append(p.steps, s)
	return nil
}

// opOf returns the operation that makes an object equal to the source's, if one is
// needed.
func (p *plan) opOf(r record) (log.Op, bool) {
	kind, id := r.object.Kind(), r.object.ID()
	if kind == log.KindIP {
		return p.opOfIP(r)
	}
	told, whole := p.ownFields(r, r.given), p.ownFields(r, r.whole)
	have, there := p.state.Get(kind, id)
	op := log.Op{Action: log.Create, Kind: kind, Object: r.object, Set: told, Options: optionsOf(kind)}
	if !there {
		return op, true
	}
	want := log.Clone(have.Object)
	log.Assign(want, r.object, whole)
	op.Action, op.ID, op.Set = log.Update, id, nil
	for _, change := range log.Diff(have.Object, want) {
		op.Set = append(op.Set, change.Path)
	}
	if kind == log.KindNIC && len(op.Set) > 0 {
		// An update that moves a NIC must name what stays the same, such as an equal
		// address on another network, or the server.
		for _, name := range []string{"cn_uuid", "ip", "network_uuid"} {
			if slices.Contains(whole, name) && !slices.Contains(op.Set, name) {
				op.Set = append(op.Set, name)
			}
		}
	}
	slices.Sort(op.Set)
	return op, len(op.Set) > 0
}

// optionsOf: the source has accepted the owner, so it is accepted here.
func optionsOf(kind log.Kind) []log.Option {
	if kind == log.KindNIC || kind == log.KindIP {
		return []log.Option{log.OptionAnyOwner}
	}
	return nil
}

// fixedFields are fields that only a create can set.
var fixedFields = []string{"created_timestamp", "modified_timestamp"}

// gatewayField is a field of networks that the servers derive from NICs.
const gatewayField = "gateway_provisioned"

// ownFields returns the fields that are the object's own. The tag and the VLAN of a NIC
// on a network are the network's. Times can be set only for a new NIC. Whether the gateway
// of a network is provisioned follows from the NICs once it is there.
func (p *plan) ownFields(r record, names []string) []string {
	nic, isNIC := r.object.(*log.NIC)
	_, there := p.state.Find(r.object)
	if r.object.Kind() == log.KindNetwork && there { // it follows from the NICs
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == gatewayField })
	}
	if !isNIC {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return there && slices.Contains(fixedFields, name) || !nic.NetworkUUID.IsZero() && (name == "nic_tag" || name == "vlan_id")
	})
}

// readRouters takes the routes that follow from routers out of the networks.
func (p *plan) readRouters() {
	subnets := make(map[log.UUID]*log.Network)
	for _, r := range p.in.records[log.KindNetwork] {
		subnets[r.object.(*log.Network).UUID] = r.object.(*log.Network)
	}
	for _, r := range p.in.records[log.KindRouter] {
		router := r.object.(*log.Router)
		for i := range min(len(router.Networks), len(router.Addresses)) {
			uuid, via := router.Networks[i], router.Addresses[i]
			p.routers[log.IPID(uuid, via)] = true
			n := subnets[uuid]
			if n == nil {
				continue
			}
			n.Routes = slices.DeleteFunc(slices.Clone(n.Routes), func(route log.Route) bool {
				return route.Gateway == via.String() && slices.ContainsFunc(router.Networks, func(other log.UUID) bool {
					o := subnets[other]
					return o != nil && other != uuid && o.Subnet.String() == route.Dst
				})
			})
			if len(n.Routes) == 0 {
				n.Routes = nil
			}
		}
	}
}

// settleVLANs fills in the vnet of fabrics whose buckets have it in another bucket.
func (p *plan) settleVLANs() {
	for i, r := range p.in.records[log.KindFabricVLAN] {
		v := r.object.(*log.FabricVLAN)
		if vnet, ok := p.in.vnets[v.OwnerUUID]; ok && v.VNetID == 0 {
			v.VNetID = vnet
			r.given = withField(r.given, "vnet_id")
			r.whole = withField(r.whole, "vnet_id")
			p.in.records[log.KindFabricVLAN][i] = r
		}
	}
}

func withField(names []string, name string) []string {
	at, has := slices.BinarySearch(names, name)
	if has {
		return names
	}
	return slices.Insert(slices.Clone(names), at, name)
}

// noteGateways names the networks whose gateway_provisioned differs from the source's:
// there VMAPI will make a NAT zone that it did not make, or the other way round.
func (p *plan) noteGateways() {
	for _, r := range p.in.records[log.KindNetwork] {
		rec, there := p.state.Find(r.object)
		if !there || !slices.Contains(r.given, gatewayField) {
			continue
		}
		said, is := r.object.(*log.Network).GatewayProvisioned, rec.Object.(*log.Network).GatewayProvisioned
		switch {
		case said && !is:
			p.note(r, gatewayField, "it is true, and no NIC here has the gateway's address: it is false here", "look for the NIC of the NAT zone among what is left out, or let the next VM's provisioning make another")
		case is && !said:
			p.note(r, gatewayField, "it is false, and a NIC has the gateway's address: it is true here", "none is needed if that NIC is a NAT zone's")
		}
	}
}

// note records a problem of an object that is imported with a difference.
func (p *plan) note(r record, field, message, remedy string) {
	p.problems = append(p.problems, problem{
		Kind: r.object.Kind().String(), ID: r.object.ID(), From: r.from, Field: field, Message: message, Remedy: remedy,
	})
}

// settleNICs mends contradictions among NICs and with their networks. NAPI allows two
// primary NICs, and a NIC with a tag that is not its network's.
func (p *plan) settleNICs() {
	networks := make(map[log.UUID]*log.Network)
	for _, r := range p.in.records[log.KindNetwork] {
		networks[r.object.(*log.Network).UUID] = r.object.(*log.Network)
	}
	primary := make(map[log.UUID]log.MAC)
	kept := p.in.records[log.KindNIC][:0]
	for _, r := range p.in.records[log.KindNIC] {
		nic := r.object.(*log.NIC)
		if first, taken := primary[nic.BelongsToUUID]; nic.Primary && taken {
			p.note(r, "primary", fmt.Sprintf("NIC %s of the same %s is primary too: this one is no longer", first, nic.BelongsToType), "set the right one's primary in NAPI, and run again")
			nic.Primary = false
		} else if nic.Primary {
			primary[nic.BelongsToUUID] = nic.MAC
		}
		if n := networks[nic.NetworkUUID]; n != nil && nic.NICTag != "" && tagOf(nic.NICTag) != n.NICTag {
			p.note(r, "nic_tag", fmt.Sprintf("it names %q, and its network %q: the network's is taken", nic.NICTag, n.NICTag), "none is needed if that is right")
		}
		if !nic.NetworkUUID.IsZero() && !nic.IP.IsValid() {
			refusal := &log.Refusal{Code: log.CodeInvalidParameters, Message: "Invalid parameters", Errors: []log.FieldError{{
				Field: "ip", Code: log.ElementMissing, Message: "the NIC is on a network and has no address", Remedy: "give it one in NAPI, or take it off the network",
			}}}
			p.tallies[log.KindNIC].Refuse++
			p.problems = append(p.problems, problemsOf(refusal, log.KindNIC, r.object.ID(), r.from)...)
			continue
		}
		kept = append(kept, r)
	}
	p.in.records[log.KindNIC] = kept
}

// tagOf is the tag of what a NIC on a fabric shows as TAG/VNET.
func tagOf(shown string) string {
	for i := range shown {
		if shown[i] == '/' {
			return shown[:i]
		}
	}
	return shown
}
