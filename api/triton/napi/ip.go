package napi

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/projections"
)

// ipForm is an address of a network in an answer (spec/napi.md section 3.1).
type ipForm struct {
	IP            netip.Addr `json:"ip"`
	Reserved      bool       `json:"reserved"`
	Free          bool       `json:"free"` // derived: no NIC has it, and it is not reserved
	BelongsToType string     `json:"belongs_to_type,omitempty"`
	BelongsToUUID log.UUID   `json:"belongs_to_uuid,omitzero"`
	OwnerUUID     log.UUID   `json:"owner_uuid,omitzero"`
	NetworkUUID   log.UUID   `json:"network_uuid"`
}

// formOfIP returns the form of an address, from its NIC, its own object, and the
// addresses that the network reserves.
func (s *Service) formOfIP(state *projections.State, n *log.Network, ip netip.Addr) ipForm {
	f := ipForm{IP: ip, NetworkUUID: n.UUID}
	rec, found := state.Get(log.KindIP, log.IPID(n.UUID, ip))
	if found {
		o := rec.Object.(*log.IP)
		f.Reserved, f.BelongsToType, f.BelongsToUUID, f.OwnerUUID = o.Reserved, o.BelongsToType, o.BelongsToUUID, o.OwnerUUID
	}
	if rec, ok := state.NICAt(n.UUID, ip); ok {
		nic := rec.Object.(*log.NIC)
		f.BelongsToType, f.BelongsToUUID, f.OwnerUUID = nic.BelongsToType, nic.BelongsToUUID, nic.OwnerUUID
	} else if !found && slices.Contains(kept(n), ip) {
		f.Reserved = true
		if !s.cfg.Admin.IsZero() {
			f.BelongsToType, f.BelongsToUUID, f.OwnerUUID = "other", s.cfg.Admin, s.cfg.Admin
		}
	}
	f.Free = !f.Reserved && f.BelongsToType == "" && f.BelongsToUUID.IsZero() && f.OwnerUUID.IsZero()
	return f
}

// kept are the addresses that a network reserves, sorted: the gateway, the resolvers in
// its subnet and, for IPv4, the broadcast address.
func kept(n *log.Network) []netip.Addr {
	var all []netip.Addr
	for _, ip := range append([]netip.Addr{n.Gateway}, n.Resolvers...) {
		if ip.IsValid() && n.Subnet.Contains(ip) {
			all = append(all, ip)
		}
	}
	if first := n.Subnet.Addr(); first.Is4() {
		b := first.As4()
		for i := n.Subnet.Bits(); i < 32; i++ {
			b[i/8] |= 1 << (7 - i%8)
		}
		all = append(all, netip.AddrFrom4(b))
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// listIPs answers with the addresses of a network that have a NIC or an object or are
// reserved.
func (s *Service) listIPs(w http.ResponseWriter, r *http.Request) error {
	in, err := readQuery(r, "belongs_to_type", "belongs_to_uuid", "limit", "offset", "owner_uuid")
	if err != nil {
		return err
	}
	limit, offset := in.page()
	match := ipFilter(in)
	if err := in.err(); err != nil {
		return err
	}
	if err := s.fresh(r); err != nil {
		return err
	}
	id, err := s.networkID(r)
	if err != nil {
		return err
	}
	found := []ipForm{}
	var from netip.Addr // where the next slice begins; none at first
	for more := true; more; {
		var n *log.Network
		var slice []ipForm
		s.store.View(func(state *projections.State, _ log.Cursor) {
			if n = state.Network(id); n != nil {
				slice, from = s.ipSlice(state, n, from)
			}
		})
		if n == nil {
			return notFound(nounNetwork)
		}
		for _, f := range slice {
			if !match(f) {
				continue
			}
			if offset > 0 {
				offset--
				continue
			}
			if found = append(found, f); uint64(len(found)) == limit {
				break
			}
		}
		more = from.IsValid() && uint64(len(found)) < limit && r.Context().Err() == nil
	}
	rest.WriteJSON(w, r, http.StatusOK, found)
	return nil
}

// ipSlice returns the next addresses of a network, and where the ones after them
// begin, if there may be more.
func (s *Service) ipSlice(state *projections.State, n *log.Network, from netip.Addr) (slice []ipForm, next netip.Addr) {
	if !from.IsValid() {
		from = n.Subnet.Addr()
	}
	reserved := slices.DeleteFunc(kept(n), func(ip netip.Addr) bool { return ip.Less(from) })
	add := func(ip netip.Addr) bool {
		if len(slice) == sliceRows {
			next = ip
			return false
		}
		slice = append(slice, s.formOfIP(state, n, ip))
		return true
	}
	for ip := range state.AddressesFrom(n.UUID, from) {
		for len(reserved) > 0 && reserved[0].Less(ip) {
			if !add(reserved[0]) {
				return slice, next
			}
			reserved = reserved[1:]
		}
		if len(reserved) > 0 && reserved[0] == ip {
			reserved = reserved[1:]
		}
		if !add(ip) {
			return slice, next
		}
	}
	for _, ip := range reserved {
		if !add(ip) {
			break
		}
	}
	return slice, next
}

func ipFilter(in *input) func(f ipForm) bool {
	var kind string
	var belongsTo, owner log.UUID
	byKind := take(in, "belongs_to_type", text, &kind)
	byBelongs := take(in, "belongs_to_uuid", uuid, &belongsTo)
	byOwner := take(in, "owner_uuid", uuid, &owner)
	return func(f ipForm) bool {
		return (!byKind || f.BelongsToType == kind) && (!byBelongs || f.BelongsToUUID == belongsTo) && (!byOwner || f.OwnerUUID == owner)
	}
}

// addressOf reads the network and the address of a path, and that they fit.
func (s *Service) addressOf(r *http.Request) (log.UUID, netip.Addr, error) {
	id, err := s.networkID(r)
	if err != nil {
		return id, netip.Addr{}, err
	}
	_, body, err := s.find(log.KindNetwork, id.String(), nounNetwork, func(_ *projections.State, o log.Object) any {
		return o.(*log.Network).Subnet
	})
	if err != nil {
		return id, netip.Addr{}, err
	}
	subnet := body.(netip.Prefix)
	ip, err := parseAddr(r.PathValue("ip"))
	message := ""
	switch {
	case err != nil:
		message = "Invalid IP address"
	case ip.Is4() != subnet.Addr().Is4():
		message = "IP and subnet are of different address families"
	case !subnet.Contains(ip):
		message = "IP is not in subnet"
	}
	if message != "" {
		return id, ip, fail(http.StatusNotFound, codeNotFound, message)
	}
	return id, ip, nil
}

func (s *Service) getIP(w http.ResponseWriter, r *http.Request) error {
	if err := s.fresh(r); err != nil {
		return err
	}
	id, ip, err := s.addressOf(r)
	if err != nil {
		return err
	}
	return s.answerIP(w, r, id, ip)
}

func (s *Service) answerIP(w http.ResponseWriter, r *http.Request, network log.UUID, ip netip.Addr) error {
	var tag string
	_, form, err := s.find(log.KindNetwork, network.String(), nounNetwork, func(state *projections.State, o log.Object) any {
		n := o.(*log.Network)
		tag = ipTag(state, n, ip)
		return s.formOfIP(state, n, ip)
	})
	if err != nil {
		return err
	}
	return answerTagged(w, r, tag, form)
}

// ipChange is what a PUT of an address asks for.
type ipChange struct {
	ip             log.IP
	free, unassign bool
	set            []string
	options        []log.Option
}

func (s *Service) readIPChange(r *http.Request) (c ipChange, err error) {
	in, err := s.readInput(r, ipForm{})
	if err != nil {
		return c, err
	}
	take(in, "belongs_to_type", text, &c.ip.BelongsToType)
	take(in, "belongs_to_uuid", uuid, &c.ip.BelongsToUUID)
	take(in, "owner_uuid", uuid, &c.ip.OwnerUUID)
	take(in, "reserved", boolean, &c.ip.Reserved)
	c.set = in.names()
	take(in, "free", boolean, &c.free)
	take(in, "unassign", boolean, &c.unassign)
	c.options = s.options(takeChecked(in), c.ip.OwnerUUID)
	if c.free && c.unassign {
		in.bad("unassign", "\"free\" and \"unassign\" cannot be set together")
	}
	return c, in.err()
}

// updateIP answers PUT /networks/UUID/ips/IP.
func (s *Service) updateIP(w http.ResponseWriter, r *http.Request) error {
	if err := s.fresh(r); err != nil {
		return err
	}
	id, ip, err := s.addressOf(r)
	if err != nil {
		return err
	}
	c, err := s.readIPChange(r)
	if err != nil {
		return err
	}
	_, err = s.decided(r, isConditional(r), func() ([]log.Op, error) { return s.prepareIP(r, c, id, ip) })
	if err != nil {
		return err
	}
	return s.answerIP(w, r, id, ip)
}

// prepareIP returns the operations of a change of an address. If the request has a
// condition, it is judged by what this server has; the operations are accepted only if
// the log has nothing else when they are decided.
func (s *Service) prepareIP(r *http.Request, c ipChange, network log.UUID, ip netip.Addr) (ops []log.Op, err error) {
	op := c.op(network, ip)
	if !isConditional(r) {
		if len(op.Set) == 0 {
			return nil, nil
		}
		return []log.Op{op}, nil
	}
	s.store.View(func(state *projections.State, _ log.Cursor) {
		rec, ok := state.Get(log.KindNetwork, network.String())
		if !ok {
			err = notFound(nounNetwork)
			return
		}
		n := rec.Object.(*log.Network)
		if err = conditions(r, ipTag(state, n, ip)); err == nil && len(op.Set) > 0 {
			ops = guardIP(state, rec, op, ip)
		}
	})
	return ops, err
}

// guardIP adds to the operation on an address that what its tag is made of is unchanged:
// the address's object, the NIC that has it or that none has, and the network.
func guardIP(state *projections.State, network projections.Record, op log.Op, ip netip.Addr) []log.Op {
	n := network.Object.(*log.Network)
	ops := []log.Op{op}
	if rec, found := state.Get(log.KindIP, op.ID); found {
		ops[0].IfMatch, ops[0].IfSeq = rec.Revision, rec.Seq
	} else {
		ops[0].Action = log.Create // refused if there is one by then
		ops = append(ops, unchanged(network))
	}
	if nic, held := state.NICAt(n.UUID, ip); held {
		return append(ops, unchanged(nic))
	}
	if state.Feature() >= log.FeatureTriton {
		ops[0].Options = append(slices.Clone(op.Options), log.OptionNoNIC)
		slices.Sort(ops[0].Options)
	}
	return ops
}

// unchanged is an operation that alters nothing, and is refused if the object is another
// when it is decided.
func unchanged(rec projections.Record) log.Op {
	o := rec.Object
	return log.Op{Action: log.Update, Kind: o.Kind(), ID: o.ID(), Object: o, IfMatch: rec.Revision, IfSeq: rec.Seq}
}

// ipTag is the Etag of an address: that of its object, and the NIC that has it with what
// the address shows of it. An address of which nothing is kept has the tag of an empty
// text, as in NAPI.
func ipTag(state *projections.State, n *log.Network, ip netip.Addr) string {
	var parts []string
	rec, found := state.Get(log.KindIP, log.IPID(n.UUID, ip))
	if found {
		parts = append(parts, rest.BareTag(rec.ETag()))
	}
	if rec, held := state.NICAt(n.UUID, ip); held {
		nic := rec.Object.(*log.NIC)
		shown := fnv.New64a()
		fmt.Fprint(shown, nic.MAC, nic.BelongsToType, nic.BelongsToUUID, nic.OwnerUUID)
		parts = append(parts, fmt.Sprintf("%016x", shown.Sum64()))
	} else if !found && slices.Contains(kept(n), ip) {
		parts = append(parts, "reserved")
	}
	return `"` + strings.Join(parts, "-") + `"`
}

// op is the operation on an address, with or without an existing object.
func (c *ipChange) op(network log.UUID, ip netip.Addr) log.Op {
	o, set := c.ip, c.set
	switch {
	case c.free:
		o, set = log.IP{}, []string{"belongs_to_type", "belongs_to_uuid", "owner_uuid", "reserved"}
	case c.unassign:
		o, set = log.IP{}, []string{"belongs_to_type", "belongs_to_uuid"}
	}
	o.NetworkUUID, o.IP = network, ip
	return log.Op{Action: log.Update, Kind: log.KindIP, ID: log.IPID(network, ip), Set: set, Object: &o, Options: c.options}
}

// searchIPs answers with an address on every network that contains it.
func (s *Service) searchIPs(w http.ResponseWriter, r *http.Request) error {
	in, err := readQuery(r, "belongs_to_type", "belongs_to_uuid", "fabric", "ip", "limit", "offset", "owner_uuid")
	if err != nil {
		return err
	}
	limit, offset := in.page()
	var ip netip.Addr
	var fabric bool
	matches := ipFilter(in)
	byFabric := take(in, "fabric", boolean, &fabric)
	in.require("ip")
	take(in, "ip", addr, &ip)
	if err := in.err(); err != nil {
		return err
	}
	if err := s.fresh(r); err != nil {
		return err
	}
	found, err := s.gather(r, listing{
		walks: []projections.Walk{{Kind: log.KindNetwork}}, limit: limit, offset: offset,
		match: func(state *projections.State, o log.Object) bool {
			n := o.(*log.Network)
			if !n.Subnet.Contains(ip) || byFabric && n.Fabric != fabric {
				return false
			}
			return matches(s.formOfIP(state, n, ip))
		},
		shape: func(state *projections.State, o log.Object) any { return s.formOfIP(state, o.(*log.Network), ip) },
	})
	if err != nil {
		return err
	}
	if len(found) == 0 && offset == 0 {
		return fail(http.StatusNotFound, codeNotFound, "No networks found containing that IP address")
	}
	rest.WriteJSON(w, r, http.StatusOK, found)
	return nil
}
