package provision

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"rutter/log"
)

// MaxNetworks bounds the networks that one request puts a VM on.
const MaxNetworks = 32

// Invalid is what is wrong with a request. It is an error.
type Invalid struct {
	Field   string // as the request has it, as in networks.0.uuid
	Message string
	Remedy  string
}

// Error implements error.
func (e *Invalid) Error() string { return e.Field + ": " + e.Message }

func invalid(field, remedy, format string, args ...any) error {
	return &Invalid{field, fmt.Sprintf(format, args...), remedy}
}

// Network is a network that a VM is to be on, as VMAPI names one: a UUID, or an object.
type Network struct {
	UUID    string   `json:"uuid"`
	V4      string   `json:"ipv4_uuid"`
	Name    string   `json:"name"` // of a network or a pool; the caller resolves it (ID)
	IP      string   `json:"ip"`
	IPs     []string `json:"ipv4_ips"`
	Primary bool     `json:"primary"`

	AllowDHCP       bool `json:"allow_dhcp_spoofing"`
	AllowIP         bool `json:"allow_ip_spoofing"`
	AllowMAC        bool `json:"allow_mac_spoofing"`
	AllowRestricted bool `json:"allow_restricted_traffic"`
}

// UnmarshalJSON reads either form. A text such as "true" is a truth value, as it is in
// VMAPI and NAPI.
func (n *Network) UnmarshalJSON(b []byte) error {
	if bytes.Equal(b, []byte("null")) {
		return errors.New("null is no network")
	}
	if json.Unmarshal(b, &n.UUID) == nil {
		return nil
	}
	type plain Network
	var w struct {
		*plain
		Primary         truth `json:"primary"`
		AllowDHCP       truth `json:"allow_dhcp_spoofing"`
		AllowIP         truth `json:"allow_ip_spoofing"`
		AllowMAC        truth `json:"allow_mac_spoofing"`
		AllowRestricted truth `json:"allow_restricted_traffic"`
	}
	w.plain = (*plain)(n)
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	n.Primary, n.AllowDHCP, n.AllowIP = bool(w.Primary), bool(w.AllowDHCP), bool(w.AllowIP)
	n.AllowMAC, n.AllowRestricted = bool(w.AllowMAC), bool(w.AllowRestricted)
	return nil
}

// truth is a truth value of Triton's programs, also in text or as a number.
type truth bool

// UnmarshalJSON implements json.Unmarshaler.
func (t *truth) UnmarshalJSON(b []byte) error {
	switch strings.Trim(string(b), `"`) {
	case "true", "1":
		*t = true
	case "false", "0", "", "null":
		*t = false
	default:
		return fmt.Errorf("%.40s is neither true nor false", b)
	}
	return nil
}

// ID is the text that names the network or the pool: a UUID, unless only Name is given.
func (n *Network) ID() string { return n.UUID + n.V4 }

// Networks reads the field networks of a request: from 1 to MaxNetworks, of which one at
// most is primary. An error is an *Invalid.
func Networks(raw json.RawMessage) (list []Network, err error) {
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, invalid("networks", `send a list, as in [{"uuid": "…", "primary": true}]`, "%s", wrongKind(err))
	}
	if len(list) == 0 || len(list) > MaxNetworks {
		return nil, invalid("networks", fmt.Sprintf("send from 1 to %d", MaxNetworks), "there are %d", len(list))
	}
	primaries := 0
	for i := range list {
		if list[i].UUID != "" && list[i].V4 != "" {
			return nil, invalid(fmt.Sprintf("networks.%d", i), "send one of them", "uuid and ipv4_uuid exclude each other")
		}
		if list[i].Primary {
			primaries++
		}
	}
	if primaries > 1 {
		return nil, invalid("networks", "mark one", "Cannot specify more than one primary network")
	}
	return list, nil
}

// wrongKind says what JSON of the wrong kind is, without Go's type names.
func wrongKind(err error) string {
	var kind *json.UnmarshalTypeError
	if !errors.As(err, &kind) {
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	found, _, _ := strings.Cut(kind.Value, " ")
	return "it is no list of networks, but of kind " + found
}

// NICs are the operations that make NICs of a VM on networks, without their MACs (Draw).
// One of the NICs of a new VM is primary: the first, unless another is marked. An error is
// an *Invalid.
func NICs(vm *log.VM, networks []Network, isNew bool) ([]log.Op, error) {
	var ops []log.Op
	primary := 0
	for i := range networks {
		nic, set, err := networks[i].nic(fmt.Sprintf("networks.%d", i))
		if err != nil {
			return nil, err
		}
		if nic.Primary = networks[i].Primary; nic.Primary {
			primary = i
		}
		nic.BelongsToUUID, nic.OwnerUUID, nic.CNUUID = vm.UUID, vm.OwnerUUID, vm.ServerUUID
		ops = append(ops, log.Op{Action: log.Create, Kind: log.KindNIC, Set: set, Object: nic})
	}
	if isNew {
		ops[primary].Object.(*log.NIC).Primary = true
	}
	return ops, nil
}

// nic is the NIC that a network asks for, and the names of its fields.
func (n *Network) nic(field string) (*log.NIC, []string, error) {
	nic := &log.NIC{
		BelongsToType: "zone", AllowDHCPSpoofing: n.AllowDHCP, AllowIPSpoofing: n.AllowIP, AllowMACSpoofing: n.AllowMAC, AllowRestrictedTraffic: n.AllowRestricted,
	}
	set := []string{"belongs_to_type", "belongs_to_uuid", "cn_uuid", "mac", "network_uuid", "owner_uuid", "primary"}
	for name, is := range map[string]bool{
		"allow_dhcp_spoofing": n.AllowDHCP, "allow_ip_spoofing": n.AllowIP, "allow_mac_spoofing": n.AllowMAC, "allow_restricted_traffic": n.AllowRestricted,
	} {
		if is {
			set = append(set, name)
		}
	}
	var err error
	if nic.NetworkUUID, err = log.ParseUUID(strings.ToLower(n.ID())); err != nil {
		return nil, nil, invalid(field+".uuid", "send the UUID of a network or a pool", "%.60q is not a UUID", n.ID())
	}
	if len(n.IPs) > 1 || len(n.IPs) == 1 && n.IP != "" {
		return nil, nil, invalid(field+".ipv4_ips", "send one address", "a NIC has one address")
	}
	if text := n.IP + strings.Join(n.IPs, ""); text != "" {
		if nic.IP, err = netip.ParseAddr(text); err != nil {
			return nil, nil, invalid(field+".ip", "send an address, or leave it out", "%.60q is no address", text)
		}
		set = append(set, "ip")
	}
	return nic, set, nil
}

// oui is that of the MACs of VMs (spec/napi.md section 3.1).
var oui = [3]byte{0x90, 0xb8, 0xd0}

// Draw gives each NIC a MAC at random, and returns the NICs as a task names them. A MAC may
// be taken (IsTaken): draw again, at most MaxDraws times.
func Draw(nics []log.Op) (json.RawMessage, error) {
	list := make([]map[string]any, len(nics))
	for i, op := range nics {
		nic := op.Object.(*log.NIC)
		copy(nic.MAC[:], oui[:])
		_, _ = rand.Read(nic.MAC[3:]) // it never fails
		list[i] = map[string]any{"mac": nic.MAC, "network_uuid": nic.NetworkUUID, "primary": nic.Primary}
	}
	return json.Marshal(list)
}

// MaxDraws is how often MACs are drawn, until all are free.
const MaxDraws = 3

// IsTaken reports whether a change was refused because another NIC has the MAC.
func IsTaken(refusal *log.Refusal) bool {
	for _, e := range refusal.Errors {
		if strings.HasSuffix(e.Field, "mac") && e.Code == log.ElementDuplicate {
			return true
		}
	}
	return false
}

// InWords returns a refusal whose fields are named as the request has them: that of
// operation first+N as networks.N.FIELD, and those of other operations by the field alone.
func InWords(refusal *log.Refusal, first int) *log.Refusal {
	named := *refusal
	named.Errors = nil
	for _, e := range refusal.Errors {
		var at int
		var field string
		if n, _ := fmt.Sscanf(e.Field, "ops.%d.%s", &at, &field); n == 2 && at >= first {
			e.Field = fmt.Sprintf("networks.%d.%s", at-first, field)
		} else if n == 2 {
			e.Field = field
		}
		named.Errors = append(named.Errors, e)
	}
	return &named
}
