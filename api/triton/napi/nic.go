package napi

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"rutter/log"
	"rutter/projections"
)

// nicForm is a NIC in an answer (spec/napi.md section 3.1).
type nicForm struct {
	BelongsToType string     `json:"belongs_to_type"`
	BelongsToUUID log.UUID   `json:"belongs_to_uuid"`
	MAC           log.MAC    `json:"mac"`
	OwnerUUID     log.UUID   `json:"owner_uuid"`
	Primary       bool       `json:"primary"`
	State         string     `json:"state"`
	Created       string     `json:"created_timestamp"`
	Modified      string     `json:"modified_timestamp"`
	IP            netip.Addr `json:"ip,omitzero"`
	*fromNetwork
	NICTag                 string   `json:"nic_tag,omitempty"`
	CNUUID                 log.UUID `json:"cn_uuid,omitzero"`
	Model                  string   `json:"model,omitempty"`
	NICTagsProvided        []string `json:"nic_tags_provided,omitempty"`
	AllowDHCPSpoofing      bool     `json:"allow_dhcp_spoofing,omitempty"`
	AllowIPSpoofing        bool     `json:"allow_ip_spoofing,omitempty"`
	AllowMACSpoofing       bool     `json:"allow_mac_spoofing,omitempty"`
	AllowRestrictedTraffic bool     `json:"allow_restricted_traffic,omitempty"`
	AllowUnfilteredPromisc bool     `json:"allow_unfiltered_promisc,omitempty"`
	Underlay               bool     `json:"underlay,omitempty"`
}

// fromNetwork is what a NIC takes from its network.
type fromNetwork struct {
	*fabricNIC
	Gateway     netip.Addr    `json:"gateway,omitzero"`
	MTU         uint32        `json:"mtu"`
	Netmask     string        `json:"netmask,omitempty"`
	Resolvers   log.Addresses `json:"resolvers"`
	VLANID      uint32        `json:"vlan_id"`
	Routes      log.Routes    `json:"routes,omitempty"`
	NetworkUUID log.UUID      `json:"network_uuid"`
}

// fabricNIC has the additional fields of NICs on fabrics.
type fabricNIC struct {
	Fabric             bool  `json:"fabric"`
	GatewayProvisioned *bool `json:"gateway_provisioned,omitempty"`
	InternetNAT        bool  `json:"internet_nat"`
}

// timeForm is ISO 8601 with milliseconds; an unset time is 1970, as in NAPI.
const timeForm = "2006-01-02T15:04:05.000Z"

func timeText(t log.Time) string { return time.Unix(0, int64(t)).UTC().Format(timeForm) }

func shapeNIC(state *projections.State, o log.Object) any {
	return formOfNIC(o.(*log.NIC), state.WithGateway(state.Network(o.(*log.NIC).NetworkUUID)))
}

func formOfNIC(nic *log.NIC, n *log.Network) *nicForm {
	f := &nicForm{
		BelongsToType: nic.BelongsToType, BelongsToUUID: nic.BelongsToUUID, MAC: nic.MAC, OwnerUUID: nic.OwnerUUID,
		Primary: nic.Primary, State: nic.State, Created: timeText(nic.Created), Modified: timeText(nic.Modified), IP: nic.IP,
		NICTag: shownTag(nic, n), CNUUID: shownCN(nic), Model: nic.Model, NICTagsProvided: nic.NICTagsProvided,
		AllowDHCPSpoofing: nic.AllowDHCPSpoofing, AllowIPSpoofing: nic.AllowIPSpoofing, AllowMACSpoofing: nic.AllowMACSpoofing,
		AllowRestrictedTraffic: nic.AllowRestrictedTraffic, AllowUnfilteredPromisc: nic.AllowUnfilteredPromisc, Underlay: nic.Underlay,
	}
	if n == nil {
		return f
	}
	f.fromNetwork = &fromNetwork{
		Gateway: n.Gateway, MTU: n.MTU, Netmask: netmask(n.Subnet), Resolvers: n.Resolvers, VLANID: n.VLANID,
		Routes: n.Routes, NetworkUUID: n.UUID,
	}
	if slices.ContainsFunc(n.Routes, func(route log.Route) bool { return route.Gateway == linkLocal }) {
		f.Routes = slices.Clone(n.Routes)
		for i := range f.Routes {
			if f.Routes[i].Gateway == linkLocal {
				f.Routes[i].Gateway = "macs[" + nic.MAC.String() + "]"
			}
		}
	}
	if n.Fabric {
		f.fabricNIC = &fabricNIC{true, provisioned(n), n.InternetNAT}
	}
	return f
}

// shownTag is the tag of a NIC's network, on a fabric TAG/VNET, or its own.
func shownTag(nic *log.NIC, n *log.Network) string {
	switch {
	case n == nil:
		return nic.NICTag
	case n.Fabric:
		return n.NICTag + "/" + strconv.FormatUint(uint64(n.VNetID), 10)
	}
	return n.NICTag
}

// shownCN is the compute node of a NIC. That of a server's own NIC is the server, which
// NAPI does not show.
func shownCN(nic *log.NIC) log.UUID {
	if nic.BelongsToType == "server" {
		return log.UUID{}
	}
	return nic.CNUUID
}

const nounNIC = "nic"

func macOf(r *http.Request) (log.MAC, error) {
	m, err := log.ParseMAC(r.PathValue("mac"))
	if err != nil {
		return m, invalid(bad("mac", "invalid MAC address"))
	}
	return m, nil
}

func (s *Service) listNICs(w http.ResponseWriter, r *http.Request) error {
	in, err := readQuery(r, "allow_dhcp_spoofing", "allow_ip_spoofing", "allow_mac_spoofing", "allow_restricted_traffic",
		"allow_unfiltered_promisc", "belongs_to_type", "belongs_to_uuid", "cn_uuid", "limit", "network_uuid", "nic_tag",
		"nic_tags_provided", "offset", "owner_uuid", "state", "underlay")
	if err != nil {
		return err
	}
	var l listing
	l.limit, l.offset = in.page()
	l.shape = shapeNIC
	l.match = nicFilter(in)
	l.walks = nicWalks(in)
	if err := in.err(); err != nil {
		return err
	}
	return s.answerList(w, r, l)
}

// nicWalks returns the index by which a list of NICs is read.
func nicWalks(in *input) []projections.Walk {
	for _, index := range []struct {
		name string
		walk func(log.UUID) projections.Walk
	}{
		{"belongs_to_uuid", func(u log.UUID) projections.Walk { return projections.Walk{Kind: log.KindNIC, BelongsTo: u} }},
		{"network_uuid", func(u log.UUID) projections.Walk { return projections.Walk{Kind: log.KindNIC, Network: u} }},
		{"cn_uuid", func(u log.UUID) projections.Walk { return projections.Walk{Kind: log.KindNIC, CN: u} }},
		{"owner_uuid", func(u log.UUID) projections.Walk { return projections.Walk{Kind: log.KindNIC, Owner: u} }},
	} {
		found, _ := uuids(in.values[index.name])
		if len(found) == 0 {
			continue
		}
		var walks []projections.Walk
		for _, u := range found {
			walks = append(walks, index.walk(u))
		}
		return walks
	}
	return []projections.Walk{{Kind: log.KindNIC}}
}

// nicFilter reads the filters of a list of NICs.
func nicFilter(in *input) func(*projections.State, log.Object) bool {
	var all []func(state *projections.State, n *log.NIC) bool
	ids := func(name string, get func(n *log.NIC) log.UUID) {
		var want []log.UUID
		if take(in, name, uuids, &want) {
			all = append(all, func(_ *projections.State, n *log.NIC) bool { return slices.Contains(want, get(n)) })
		}
	}
	ids("owner_uuid", func(n *log.NIC) log.UUID { return n.OwnerUUID })
	ids("cn_uuid", shownCN)
	ids("belongs_to_uuid", func(n *log.NIC) log.UUID { return n.BelongsToUUID })
	ids("network_uuid", func(n *log.NIC) log.UUID { return n.NetworkUUID })
	texts := func(name string, has func(state *projections.State, n *log.NIC, want []string) bool) {
		var want []string
		if take(in, name, words, &want) {
			all = append(all, func(state *projections.State, n *log.NIC) bool { return has(state, n, want) })
		}
	}
	texts("belongs_to_type", func(_ *projections.State, n *log.NIC, want []string) bool {
		return slices.Contains(want, n.BelongsToType)
	})
	texts("state", func(_ *projections.State, n *log.NIC, want []string) bool { return slices.Contains(want, n.State) })
	texts("nic_tag", func(state *projections.State, n *log.NIC, want []string) bool {
		tag := shownTag(n, state.Network(n.NetworkUUID))
		plain, _, _ := strings.Cut(tag, "/")
		return slices.Contains(want, tag) || slices.Contains(want, plain)
	})
	texts("nic_tags_provided", func(_ *projections.State, n *log.NIC, want []string) bool {
		return slices.ContainsFunc(n.NICTagsProvided, func(tag string) bool { return slices.Contains(want, tag) })
	})
	for _, flag := range nicFlags {
		var want bool
		if take(in, flag.name, boolean, &want) {
			all = append(all, func(_ *projections.State, n *log.NIC) bool { return *flag.of(n) == want })
		}
	}
	return func(state *projections.State, o log.Object) bool {
		n := o.(*log.NIC)
		return !slices.ContainsFunc(all, func(f func(*projections.State, *log.NIC) bool) bool { return !f(state, n) })
	}
}

// nicFlags are the flags of a NIC, which it shows only when they are set.
var nicFlags = []struct {
	name string
	of   func(n *log.NIC) *bool
}{
	{"allow_dhcp_spoofing", func(n *log.NIC) *bool { return &n.AllowDHCPSpoofing }},
	{"allow_ip_spoofing", func(n *log.NIC) *bool { return &n.AllowIPSpoofing }},
	{"allow_mac_spoofing", func(n *log.NIC) *bool { return &n.AllowMACSpoofing }},
	{"allow_restricted_traffic", func(n *log.NIC) *bool { return &n.AllowRestrictedTraffic }},
	{"allow_unfiltered_promisc", func(n *log.NIC) *bool { return &n.AllowUnfilteredPromisc }},
	{"underlay", func(n *log.NIC) *bool { return &n.Underlay }},
}

func (s *Service) getNIC(w http.ResponseWriter, r *http.Request) error {
	mac, err := macOf(r)
	if err != nil {
		return err
	}
	if err := s.fresh(r); err != nil {
		return err
	}
	return s.answerOne(w, r, log.KindNIC, mac.String(), nounNIC, shapeNIC)
}

// takeNIC reads the fields that a create and an update share.
func (s *Service) takeNIC(r *http.Request, in *input, n *log.NIC) error {
	take(in, "belongs_to_uuid", uuid, &n.BelongsToUUID)
	take(in, "belongs_to_type", oneOf("other", "server", "zone"), &n.BelongsToType)
	take(in, "owner_uuid", uuid, &n.OwnerUUID)
	take(in, "cn_uuid", uuid, &n.CNUUID)
	take(in, "ip", addr, &n.IP)
	take(in, "model", text, &n.Model)
	take(in, "nic_tag", text, &n.NICTag)
	take(in, "nic_tags_provided", words, &n.NICTagsProvided)
	take(in, "primary", boolean, &n.Primary)
	take(in, "state", oneOf("provisioning", "stopped", "running"), &n.State)
	take(in, "vlan_id", vlan, &n.VLANID)
	for _, flag := range nicFlags {
		take(in, flag.name, boolean, flag.of(n))
	}
	if in.values["network_uuid"] == adminNetwork {
		id, err := s.adminID(r)
		if err != nil {
			in.bad("network_uuid", "network does not exist")
			return nil
		}
		in.values["network_uuid"] = id.String()
	}
	take(in, "network_uuid", uuid, &n.NetworkUUID)
	if strings.Count(n.NICTag, "/") > 1 {
		in.bad("nic_tag", "nic tag names can have at most one slash")
	}
	return nil
}

// takeChecked reads whether the owner is checked against those of the network.
func takeChecked(in *input) bool {
	checked := true
	take(in, "check_owner", boolean, &checked)
	return checked
}

// options are those of an operation for a NIC or an IP with this owner.
func (s *Service) options(checked bool, owner log.UUID) []log.Option {
	var all []log.Option
	if !checked || !s.cfg.Admin.IsZero() && owner == s.cfg.Admin {
		all = append(all, log.OptionAnyOwner)
	}
	return all
}

// reservation reads whether a NIC's address is to be reserved.
func reservation(in *input) []log.Option {
	var reserved bool
	switch taken := take(in, "reserved", boolean, &reserved); {
	case taken && reserved:
		return []log.Option{log.OptionReserveIP}
	case taken:
		return []log.Option{log.OptionReleaseIP}
	}
	return nil
}

// notFields are parameters besides an object's fields.
var notFields = []string{"check_owner", "nic_tags_available", "reserved"}

// fields are the names of an object's fields that were taken.
func (in *input) fields(more ...string) []string {
	return slices.DeleteFunc(in.names(more...), func(name string) bool { return slices.Contains(notFields, name) })
}

func (s *Service) createNIC(w http.ResponseWriter, r *http.Request) error {
	in, err := s.readInput(r, nicForm{})
	if err != nil {
		return err
	}
	return s.makeNIC(w, r, in)
}

// provision answers POST /networks/UUID/nics, where UUID may be a pool's.
func (s *Service) provision(w http.ResponseWriter, r *http.Request) error {
	in, err := s.readInput(r, nicForm{})
	if err != nil {
		return err
	}
	in.values["network_uuid"] = r.PathValue("uuid")
	return s.makeNIC(w, r, in)
}

func (s *Service) makeNIC(w http.ResponseWriter, r *http.Request, in *input) error {
	if err := s.fresh(r); err != nil {
		return err
	}
	n := new(log.NIC)
	in.require("belongs_to_type", "belongs_to_uuid", "owner_uuid")
	if err := s.takeNIC(r, in, n); err != nil {
		return err
	}
	take(in, "mac", mac, &n.MAC)
	options := append(s.options(takeChecked(in), n.OwnerUUID), reservation(in)...)
	checkNIC(in, n)
	tags := s.tagsToTry(in, n.NetworkUUID)
	if err := in.err(); err != nil {
		return err
	}
	slices.Sort(options)
	result, err := s.proposeNIC(r, log.Op{Action: log.Create, Kind: log.KindNIC, Set: in.fields(), Object: n, Options: options}, tags)
	if err != nil {
		return withNetwork(err, n.NetworkUUID)
	}
	return s.answerOne(w, r, log.KindNIC, result.IDs[0], nounNIC, shapeNIC)
}

// tagsToTry returns the NIC tags on which a NIC may be provisioned from a pool: those of
// its networks that nic_tags_available names, in the order of the networks. It is nil if
// the pool's networks are on one tag, or nic_tag says on which; and if it is no pool.
func (s *Service) tagsToTry(in *input, id log.UUID) (tags []string) {
	var available []string
	hinted := take(in, "nic_tags_available", words, &available)
	var present []string
	s.store.View(func(state *projections.State, _ log.Cursor) {
		if rec, ok := state.Get(log.KindNetworkPool, id.String()); ok {
			present = poolTags(state, rec.Object.(*log.NetworkPool))
		}
	})
	switch {
	case len(present) == 0 || in.has("ip"): // a pool with an address is refused
		return nil
	case hinted:
		tags = slices.DeleteFunc(present, func(tag string) bool { return !slices.Contains(available, tag) })
		var asked string
		if take(in, "nic_tag", text, &asked) {
			tags = slices.DeleteFunc(tags, func(tag string) bool { return tag != asked })
		}
		if len(tags) == 0 {
			in.bad("network_uuid", fmt.Sprintf("network pool \"%s\" has no network on one of the NIC tags", id))
		}
	case len(present) > 1 && !in.has("nic_tag"):
		in.errs = append(in.errs, element{
			Field: "nic_tags_available", Code: log.ElementMissing,
			Message: fmt.Sprintf("the networks of network pool \"%s\" are on several NIC tags", id),
		})
	}
	return tags
}

// proposeNIC proposes a new NIC, on the first of tags on which there is room; nil: as the
// operation says.
func (s *Service) proposeNIC(r *http.Request, op log.Op, tags []string) (result log.Result, err error) {
	if len(tags) == 0 {
		return s.propose(r, op)
	}
	if !slices.Contains(op.Set, "nic_tag") {
		op.Set = append(op.Set, "nic_tag")
		slices.Sort(op.Set)
	}
	for _, tag := range tags {
		n := *op.Object.(*log.NIC)
		n.NICTag, op.Object = tag, &n
		var full *log.Refusal
		if result, err = s.propose(r, op); !errors.As(err, &full) || full.Code != log.CodeSubnetFull {
			return result, err
		}
	}
	return result, err
}

// checkNIC makes the checks of a new NIC that need only the request, in NAPI's words.
func checkNIC(in *input, n *log.NIC) {
	if n.Underlay && n.BelongsToType != "server" {
		in.bad("underlay", "underlay can only be set on server NICs")
	}
	if in.has("ip") && !in.has("network_uuid") {
		for _, name := range []string{"nic_tag", "vlan_id"} {
			if !in.has(name) {
				in.errs = append(in.errs, element{Field: name, Code: log.ElementMissing, Message: "required if IP specified but not network_uuid"})
			}
		}
	}
}

// withNetwork adds the full network to the answer.
func withNetwork(err error, network log.UUID) error {
	p := problemOf(err)
	if p.Code == log.CodeSubnetFull && !network.IsZero() {
		p.Network = network.String()
	}
	return p
}

func (s *Service) updateNIC(w http.ResponseWriter, r *http.Request) error {
	mac, err := macOf(r)
	if err != nil {
		return err
	}
	in, err := s.readInput(r, nicForm{})
	if err != nil {
		return err
	}
	n := new(log.NIC)
	if err := s.takeNIC(r, in, n); err != nil {
		return err
	}
	checked, reserve := takeChecked(in), reservation(in)
	if err := in.err(); err != nil {
		return err
	}
	t := target{kind: log.KindNIC, id: mac.String(), noun: nounNIC}
	_, err = s.change(r, t, func(_ *projections.State, rec projections.Record) ([]log.Op, error) {
		owner := n.OwnerUUID
		if !in.has("owner_uuid") {
			owner = rec.Object.(*log.NIC).OwnerUUID
		}
		options := append(s.options(checked, owner), reserve...)
		slices.Sort(options)
		return []log.Op{{Action: log.Update, Kind: t.kind, ID: t.id, Set: in.fields(), Object: n, Options: options}}, nil
	})
	if err != nil {
		return withNetwork(err, n.NetworkUUID)
	}
	return s.answerOne(w, r, log.KindNIC, t.id, nounNIC, shapeNIC)
}

func (s *Service) deleteNIC(w http.ResponseWriter, r *http.Request) error {
	mac, err := macOf(r)
	if err != nil {
		return err
	}
	return s.remove(w, r, target{kind: log.KindNIC, id: mac.String(), noun: nounNIC})
}
