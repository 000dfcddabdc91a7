package napi

import (
	"net"
	"net/http"
	"net/netip"
	"slices"

	"rutter/api/backend"
	"rutter/log"
	"rutter/projections"
)

// networkForm is a network in an answer (spec/napi.md section 3.1).
type networkForm struct {
	MTU            uint32       `json:"mtu"`
	NICTag         string       `json:"nic_tag"`
	Name           string       `json:"name"`
	ProvisionEnd   netip.Addr   `json:"provision_end_ip"`
	ProvisionStart netip.Addr   `json:"provision_start_ip"`
	Subnet         netip.Prefix `json:"subnet"`
	UUID           log.UUID     `json:"uuid"`
	VLANID         uint32       `json:"vlan_id"`
	Family         string       `json:"family"`
	*fabricForm
	Resolvers   log.Addresses `json:"resolvers"`
	Gateway     netip.Addr    `json:"gateway,omitzero"`
	Routes      log.Routes    `json:"routes,omitempty"`
	Description string        `json:"description,omitempty"`
	OwnerUUIDs  []log.UUID    `json:"owner_uuids,omitempty"`
	Netmask     string        `json:"netmask,omitempty"` // IPv4 only
}

// fabricForm has the additional fields of fabric networks.
type fabricForm struct {
	Fabric             bool     `json:"fabric"`
	VNetID             uint32   `json:"vnet_id"`
	InternetNAT        bool     `json:"internet_nat"`
	GatewayProvisioned *bool    `json:"gateway_provisioned,omitempty"` // with a gateway only
	OwnerUUID          log.UUID `json:"owner_uuid,omitzero"`           // under /fabrics only, instead of owner_uuids
}

// provisioned is gateway_provisioned of a fabric network; nil without a gateway.
func provisioned(n *log.Network) *bool {
	if !n.Gateway.IsValid() {
		return nil
	}
	is := n.GatewayProvisioned
	return &is
}

func shapeNetwork(state *projections.State, o log.Object) any {
	return formOfNetwork(state.WithGateway(o.(*log.Network)))
}

// shapeFabricNetwork is shapeNetwork for the paths of fabrics: with the owner of the
// fabric instead of the list of owners.
func shapeFabricNetwork(state *projections.State, o log.Object) any {
	f := formOfNetwork(state.WithGateway(o.(*log.Network)))
	if f.fabricForm != nil && len(f.OwnerUUIDs) > 0 {
		f.OwnerUUID, f.OwnerUUIDs = f.OwnerUUIDs[0], nil // a fabric has exactly one
	}
	return f
}

func formOfNetwork(n *log.Network) *networkForm {
	f := &networkForm{
		MTU: n.MTU, NICTag: n.NICTag, Name: n.Name, ProvisionEnd: n.ProvisionEnd, ProvisionStart: n.ProvisionStart,
		Subnet: n.Subnet, UUID: n.UUID, VLANID: n.VLANID, Family: n.Family, Resolvers: n.Resolvers, Gateway: n.Gateway,
		Routes: n.Routes, Description: n.Description, OwnerUUIDs: n.OwnerUUIDs, Netmask: netmask(n.Subnet),
	}
	if n.Fabric {
		f.fabricForm = &fabricForm{Fabric: true, VNetID: n.VNetID, InternetNAT: n.InternetNAT, GatewayProvisioned: provisioned(n)}
	}
	return f
}

// netmask is the dotted form of an IPv4 subnet's mask; "" for IPv6.
func netmask(subnet netip.Prefix) string {
	if !subnet.Addr().Is4() {
		return ""
	}
	return net.IP(net.CIDRMask(subnet.Bits(), 32)).String()
}

const (
	nounNetwork  = "network"
	adminNetwork = "admin" // a network by its name: an alias in paths
)

// networkID reads a network's UUID from the path, or finds that of the admin network. A
// text that is not a UUID names no network.
func (s *Service) networkID(r *http.Request) (log.UUID, error) {
	text := r.PathValue("uuid")
	if text == adminNetwork {
		return s.adminID(r)
	}
	id, err := log.ParseUUID(text)
	if err != nil {
		return id, notFound(nounNetwork)
	}
	return id, nil
}

// adminID finds the network named admin; see projections.AdminNetwork for a log with
// several.
func (s *Service) adminID(_ *http.Request) (id log.UUID, err error) {
	s.store.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok := projections.AdminNetwork(state); ok {
			id = rec.Object.(*log.Network).UUID
		} else {
			err = notFound(nounNetwork)
		}
	})
	return id, err
}

// mayProvision reports whether an owner may have NICs on what has these owners.
func (s *Service) mayProvision(owners []log.UUID, owner log.UUID) bool {
	return len(owners) == 0 || slices.Contains(owners, owner) || !s.cfg.Admin.IsZero() && owner == s.cfg.Admin
}

func (s *Service) listNetworks(w http.ResponseWriter, r *http.Request) error {
	in, err := readQuery(r, "family", "fabric", "limit", "name", "nic_tag", "offset", "owner_uuid", "provisionable_by", "uuid", "vlan_id")
	if err != nil {
		return err
	}
	l := listing{walks: []projections.Walk{{Kind: log.KindNetwork}}, shape: shapeNetwork}
	l.limit, l.offset = in.page()
	l.match = s.networkFilter(in)
	if tags, _ := list(in.values["nic_tag"]); len(tags) > 0 {
		l.walks = nil
		for _, tag := range tags {
			l.walks = append(l.walks, projections.Walk{Kind: log.KindNetwork, Tag: tag})
		}
	}
	if err := in.err(); err != nil {
		return err
	}
	return s.answerList(w, r, l)
}

// networkFilter reads the filters of a list of networks.
func (s *Service) networkFilter(in *input) func(*projections.State, log.Object) bool {
	var all []func(n *log.Network) bool
	add := func(taken bool, f func(n *log.Network) bool) {
		if taken {
			all = append(all, f)
		}
	}
	var family string
	var named func(log.UUID) bool
	var fabric bool
	var names, tags []string
	var owner, provisioner log.UUID
	var vlanID uint32
	add(take(in, "family", oneOf("ipv4", "ipv6"), &family), func(n *log.Network) bool { return n.Family == family })
	add(take(in, "fabric", boolean, &fabric), func(n *log.Network) bool { return n.Fabric == fabric })
	add(take(in, "name", words, &names), func(n *log.Network) bool { return slices.Contains(names, n.Name) })
	add(take(in, "nic_tag", words, &tags), func(n *log.Network) bool { return slices.Contains(tags, n.NICTag) })
	add(take(in, "owner_uuid", uuid, &owner), func(n *log.Network) bool { return slices.Contains(n.OwnerUUIDs, owner) })
	add(take(in, "provisionable_by", uuid, &provisioner), func(n *log.Network) bool { return s.mayProvision(n.OwnerUUIDs, provisioner) })
	add(take(in, "vlan_id", vlan, &vlanID), func(n *log.Network) bool { return n.VLANID == vlanID })
	add(take(in, "uuid", uuidPrefix, &named), func(n *log.Network) bool { return named(n.UUID) })
	return func(_ *projections.State, o log.Object) bool {
		n := o.(*log.Network)
		return !slices.ContainsFunc(all, func(f func(*log.Network) bool) bool { return !f(n) })
	}
}

// provisionable finds the network of the path, and checks provisionable_by.
func (s *Service) provisionable(r *http.Request) (id log.UUID, err error) {
	if err := s.fresh(r); err != nil {
		return id, err
	}
	if id, err = s.networkID(r); err != nil {
		return id, err
	}
	return id, s.checkProvisionable(r, log.KindNetwork, id, nounNetwork)
}

func (s *Service) getNetwork(w http.ResponseWriter, r *http.Request) error {
	id, err := s.provisionable(r)
	if err != nil {
		return err
	}
	return s.answerNetwork(w, r, id, shapeNetwork)
}

// answerNetwork answers a read of a network.
func (s *Service) answerNetwork(w http.ResponseWriter, r *http.Request, id log.UUID, shape shaper) error {
	shape, err := readFields(r, networkFields, shape)
	if err != nil {
		return err
	}
	return s.answerOne(w, r, log.KindNetwork, id.String(), nounNetwork, shape)
}

// checkProvisionable judges provisionable_by, if it is given.
func (s *Service) checkProvisionable(r *http.Request, kind log.Kind, id log.UUID, noun string) error {
	text := r.URL.Query().Get("provisionable_by")
	if text == "" {
		return nil
	}
	owner, err := log.ParseUUID(text)
	if err != nil {
		return invalid(bad("provisionable_by", "invalid UUID"))
	}
	_, may, err := s.find(kind, id.String(), noun, func(_ *projections.State, o log.Object) any {
		if pool, ok := o.(*log.NetworkPool); ok {
			return s.mayProvision(pool.OwnerUUIDs, owner)
		}
		return s.mayProvision(o.(*log.Network).OwnerUUIDs, owner)
	})
	if err == nil && !may.(bool) {
		err = fail(http.StatusForbidden, log.CodeNotAuthorized, "owner cannot provision on "+noun)
	}
	return err
}

// takeNetwork reads the fields that a create and an update share.
func takeNetwork(in *input, n *log.Network) {
	take(in, "name", text, &n.Name)
	take(in, "description", anyText, &n.Description)
	take(in, "mtu", networkMTU, &n.MTU)
	take(in, "provision_start_ip", addr, &n.ProvisionStart)
	take(in, "provision_end_ip", addr, &n.ProvisionEnd)
	take(in, "gateway", noAddr, &n.Gateway)
	take(in, "resolvers", addrs, &n.Resolvers)
	take(in, "routes", routes, &n.Routes)
	take(in, "subnet", subnet, &n.Subnet)
	take(in, "family", oneOf("ipv4", "ipv6"), &n.Family)
	take(in, "internet_nat", boolean, &n.InternetNAT)
}

// takeLocation reads a network's location and owners. For a fabric network under its
// VLAN, the path gives them.
func takeLocation(in *input, n *log.Network) {
	take(in, "nic_tag", text, &n.NICTag)
	take(in, "vlan_id", vlan, &n.VLANID)
	take(in, "owner_uuids", uuids, &n.OwnerUUIDs)
	take(in, "fabric", boolean, &n.Fabric)
	take(in, "vnet_id", vnet, &n.VNetID)
	take(in, "gateway_provisioned", boolean, &n.GatewayProvisioned)
}

func (s *Service) createNetwork(w http.ResponseWriter, r *http.Request) error {
	in, err := s.readInput(r, networkForm{})
	if err != nil {
		return err
	}
	n := new(log.Network)
	in.require("name", "nic_tag", "vlan_id")
	takeNetwork(in, n)
	takeLocation(in, n)
	take(in, "uuid", uuid, &n.UUID)
	return s.makeNetwork(w, r, in, n, nil)
}

// manual are the parameters of a subnet that is not chosen by the servers.
var manual = []string{"provision_end_ip", "provision_start_ip", "subnet"}

// takeAllocation reads whether the servers choose the subnet (subnet_alloc, of fabric
// networks), and requires what that needs, or a subnet otherwise.
func takeAllocation(in *input, n *log.Network) []log.Option {
	var asked bool
	var length uint32
	set := in.set // they are no fields of an object
	take(in, "subnet_alloc", boolean, &asked)
	take(in, "subnet_prefix", prefixLength, &length)
	in.set = set
	if !asked {
		if in.has("subnet_prefix") {
			in.bad("subnet_prefix", "Auto allocation parameter not allowed")
		}
		in.require(manual...)
		return nil
	}
	for _, name := range manual {
		if in.has(name) {
			in.bad(name, "Manual allocation parameter not allowed")
		}
	}
	in.require("family", "subnet_prefix")
	n.Subnet = netip.PrefixFrom(netip.IPv4Unspecified(), int(length))
	in.set = append(in.set, "subnet")
	return []log.Option{log.OptionAllocateSubnet}
}

// defaultMTU is the MTU of networks that name none (spec/napi.md section 3.1).
const defaultMTU = 1500

// makeNetwork makes a network, on a fabric VLAN unless v is nil.
func (s *Service) makeNetwork(w http.ResponseWriter, r *http.Request, in *input, n *log.Network, v *log.FabricVLAN, set ...string) error {
	shape := shapeNetwork
	if v != nil {
		shape = shapeFabricNetwork
	}
	shape = takeFields(in, networkFields, shape)
	options := takeAllocation(in, n)
	if err := in.err(); err != nil {
		return err
	}
	if !in.has("mtu") && !n.Fabric {
		n.MTU, set = defaultMTU, append(set, "mtu")
	}
	ops := []log.Op{{Action: log.Create, Kind: log.KindNetwork, Set: in.names(set...), Object: n, Options: options}}
	if v != nil { // the VLAN is not changed, but must still exist
		ops = append(ops, log.Op{Action: log.Update, Kind: log.KindFabricVLAN, ID: v.ID(), Object: v})
	}
	result, err := s.propose(r, ops...)
	if err != nil {
		return err
	}
	backend.Warn(w, s.store.View, ops, result.IDs)
	return s.answerOne(w, r, log.KindNetwork, result.IDs[0], nounNetwork, shape)
}

func (s *Service) updateNetwork(w http.ResponseWriter, r *http.Request) error {
	if err := s.fresh(r); err != nil {
		return err
	}
	id, err := s.networkID(r)
	if err != nil {
		return err
	}
	return s.putNetwork(w, r, id, shapeNetwork, nil)
}

// putNetwork updates a network, if meant accepts it (nil: any).
func (s *Service) putNetwork(w http.ResponseWriter, r *http.Request, id log.UUID, shape shaper, meant func(*log.Network) bool) error {
	in, err := s.readInput(r, networkForm{})
	if err != nil {
		return err
	}
	n := new(log.Network)
	takeNetwork(in, n)
	takeLocation(in, n)
	shape = takeFields(in, networkFields, shape)
	if err := in.err(); err != nil {
		return err
	}
	t := target{kind: log.KindNetwork, id: id.String(), noun: nounNetwork}
	ops := []log.Op{{Action: log.Update, Kind: log.KindNetwork, ID: t.id, Set: in.names(), Object: n}}
	_, err = s.change(r, t, func(_ *projections.State, rec projections.Record) ([]log.Op, error) {
		if meant != nil && !meant(rec.Object.(*log.Network)) {
			return nil, notFound(nounNetwork)
		}
		return ops, nil
	})
	if err != nil {
		return err
	}
	backend.Warn(w, s.store.View, ops, []string{t.id})
	return s.answerOne(w, r, log.KindNetwork, t.id, nounNetwork, shape)
}

func (s *Service) deleteNetwork(w http.ResponseWriter, r *http.Request) error {
	id, err := s.provisionable(r)
	if err != nil {
		return err
	}
	return s.remove(w, r, target{kind: log.KindNetwork, id: id.String(), noun: nounNetwork})
}
