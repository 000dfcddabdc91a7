package vmrule

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"rutter/log"
)

// The answer to an update that is refused, HTTP 409 (spec/vmapi-rule.md).
const (
	Status  = 409
	Code    = "ValidationFailed"
	Message = "Invalid VM update parameters"
	// ElementInvalid is the code of each element.
	ElementInvalid = "Invalid"
	// FieldBody is the field of the only element if the body could not be read.
	FieldBody = "body"
)

const (
	maxNICs      = 64 // that one update names
	maxInterface = 15 // bytes of a link's name (IFNAMSIZ of linux/if.h, without its end)
)

// ofNetwork are the fields of a NIC that follow from its network, and ofNetworks the
// fields of a VM that follow from the networks of its NICs.
var (
	ofNetwork  = []string{"gateway", "gateways", "netmask", "netmasks", "nic_tag", "resolvers", "routes", "vlan_id"}
	ofNetworks = []string{"gateway", "gateways", "netmask", "nic_tag", "remove_routes", "resolvers", "routes", "set_routes", "vlan_id"}
)

// OfNIC are the fields of a NIC that an update may name (spec/vmapi-rule.md). ip and
// ips may be named too: they do what the NIC's own update does.
var OfNIC = []string{
	"allow_dhcp_spoofing", "allow_ip_spoofing", "allow_mac_spoofing", "allow_restricted_traffic", "allow_unfiltered_promisc",
	"interface", "ip", "ips", "mac", "primary",
}

// NIC is what an update asks for one NIC of the VM.
type NIC struct {
	MAC    log.MAC
	Set    []string // JSON names of the fields of Fields that the update sets, sorted
	Fields log.NIC
	// Manifest are the fields that the node reports to the log, never the other way:
	// which NIC is primary, and the name of its link (spec/net-agent.md §2.2).
	Manifest map[string]json.RawMessage
}

// Update is a parsed update.
type Update struct {
	NICs []NIC
	// Rest are the other fields, of the VM itself.
	Rest map[string]json.RawMessage
}

// VM is what the rule needs from the VM.
type VM struct {
	// Network returns the network of a NIC of the VM, and false if it has no such NIC.
	Network func(log.MAC) (network log.UUID, subnet netip.Prefix, ok bool)
	// Networks returns the networks of all its NICs.
	Networks []log.UUID
}

// Refusal lists what is wrong with an update: one element for each field.
func refusal(elements []log.FieldError) *log.Refusal {
	return &log.Refusal{Code: Code, Message: Message, Errors: elements}
}

// Check reads an update of a VM, a JSON object. Its error is a *log.Refusal with Code
// if the update names fields that an update of a VM may not change.
func Check(body []byte, vm VM) (Update, error) {
	u := Update{Rest: make(map[string]json.RawMessage)}
	if err := json.Unmarshal(body, &u.Rest); err != nil || u.Rest == nil {
		return u, refusal([]log.FieldError{{Field: FieldBody, Code: ElementInvalid, Message: "it is no JSON object"}})
	}
	var wrong []log.FieldError
	for _, name := range ofNetworks {
		if _, named := u.Rest[name]; named {
			wrong = append(wrong, owned(name, vm.Networks))
			delete(u.Rest, name)
		}
	}
	for _, list := range []string{"nics", "update_nics"} {
		raw, named := u.Rest[list]
		if !named {
			continue
		}
		delete(u.Rest, list)
		var nics []map[string]json.RawMessage
		if err := json.Unmarshal(raw, &nics); err != nil || len(nics) > maxNICs {
			wrong = append(wrong, log.FieldError{Field: list, Code: ElementInvalid, Message: fmt.Sprintf("it is no list of at most %d NICs", maxNICs)})
			continue
		}
		for i, fields := range nics {
			nic, bad := checkNIC(list+"."+strconv.Itoa(i), fields, vm)
			wrong, u.NICs = append(wrong, bad...), append(u.NICs, nic)
		}
	}
	if len(wrong) > 0 {
		return u, refusal(wrong)
	}
	return u, nil
}

// owned refuses a field that follows from networks.
func owned(field string, networks []log.UUID) log.FieldError {
	where := []string{"PUT /networks/<uuid>"}
	if len(networks) > 0 {
		where = where[:0]
		for _, n := range networks {
			if text := "PUT /networks/" + n.String(); !slices.Contains(where, text) {
				where = append(where, text)
			}
		}
	}
	return log.FieldError{
		Field: field, Code: ElementInvalid, Message: "it is a network's, not a VM's: change it there, with " + strings.Join(where, " or "),
		Remedy: "leave it out, and update the network: every NIC on it follows",
	}
}

// checkNIC parses the update of one NIC.
func checkNIC(path string, fields map[string]json.RawMessage, vm VM) (nic NIC, wrong []log.FieldError) {
	bad := func(name, format string, args ...any) {
		wrong = append(wrong, log.FieldError{Field: path + "." + name, Code: ElementInvalid, Message: fmt.Sprintf(format, args...)})
	}
	var networks []log.UUID
	var subnet netip.Prefix
	var text string
	mac, err := log.ParseMAC("")
	if raw, named := fields["mac"]; named && json.Unmarshal(raw, &text) == nil {
		mac, err = log.ParseMAC(text)
	}
	switch nic.MAC = mac; {
	case err != nil:
		bad("mac", "name the NIC by its MAC, as in 90:b8:d0:01:02:03")
	case vm.Network != nil:
		network, s, ok := vm.Network(mac)
		if !ok {
			bad("mac", "the VM has no NIC %s", mac)
		} else if subnet = s; !network.IsZero() {
			networks = append(networks, network)
		}
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch {
		case slices.Contains(ofNetwork, name):
			e := owned(path+"."+name, networks)
			wrong = append(wrong, e)
		case !slices.Contains(OfNIC, name):
			bad(name, "'%s' is not a valid property to update", name)
		case name == "ip" || name == "ips":
			if err := nic.address(name, fields[name], subnet); err != nil {
				bad(name, "%v", err)
			}
		case name == "interface":
			if err := json.Unmarshal(fields[name], &text); err != nil || text == "" || len(text) > maxInterface {
				bad(name, "it must be the name of a link, of 1 to %d bytes", maxInterface)
			}
		case name != "mac":
			if err := nic.flag(name, fields[name]); err != nil {
				bad(name, "%v", err)
			}
		}
		if name == "interface" || name == "primary" {
			if nic.Manifest == nil {
				nic.Manifest = make(map[string]json.RawMessage)
			}
			nic.Manifest[name] = fields[name]
		}
	}
	slices.Sort(nic.Set)
	nic.Set = slices.Compact(nic.Set)
	return nic, wrong
}

func (n *NIC) flag(name string, raw json.RawMessage) error {
	o, set, err := log.ParseObject(log.KindNIC, fmt.Appendf(nil, "{%q:%s}", name, raw))
	if err != nil {
		return errors.New("it must be true or false")
	}
	read := o.(*log.NIC)
	for flag, p := range flags(&n.Fields) {
		if flag == name {
			*p = *flags(read)[name]
		}
	}
	n.Set = append(n.Set, set...)
	return nil
}

func flags(n *log.NIC) map[string]*bool {
	return map[string]*bool{
		"allow_dhcp_spoofing": &n.AllowDHCPSpoofing, "allow_ip_spoofing": &n.AllowIPSpoofing, "allow_mac_spoofing": &n.AllowMACSpoofing,
		"allow_restricted_traffic": &n.AllowRestrictedTraffic, "allow_unfiltered_promisc": &n.AllowUnfilteredPromisc, "primary": &n.Primary,
	}
}

// address parses ip or ips. A NIC has one address in Rutter.
func (n *NIC) address(name string, raw json.RawMessage, subnet netip.Prefix) error {
	texts := make([]string, 1)
	var err error
	if name == "ip" {
		err = json.Unmarshal(raw, &texts[0])
	} else {
		err = json.Unmarshal(raw, &texts)
	}
	if err != nil || len(texts) != 1 {
		return errors.New("send one address, as in [\"10.0.0.5/24\"]")
	}
	ip, length, prefixed := strings.Cut(texts[0], "/")
	address, err := netip.ParseAddr(ip)
	if err != nil {
		return fmt.Errorf("%q is no address", texts[0])
	}
	if prefixed && subnet.IsValid() && length != strconv.Itoa(subnet.Bits()) {
		return fmt.Errorf("the network's subnet is %s: its length is not a NIC's to change", subnet)
	}
	if n.Fields.IP.IsValid() && n.Fields.IP != address {
		return errors.New("ip and ips name different addresses")
	}
	n.Fields.IP = address
	n.Set = append(n.Set, "ip")
	return nil
}
