package importcmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"rutter/log"
)

// field is a field of Rutter's, and its form in NAPI and its buckets.
type field struct {
	name string
	from []string // their names; the first that is present counts
	form func(json.RawMessage) (any, error)
	// empty: NAPI omits the field when it is not set, so absence means empty.
	empty bool
}

func same(form func(json.RawMessage) (any, error), names ...string) []field {
	var all []field
	for _, name := range names {
		all = append(all, field{name: name, from: []string{name}, form: form})
	}
	return all
}

func empty(form func(json.RawMessage) (any, error), names ...string) []field {
	all := same(form, names...)
	for i := range all {
		all[i].empty = true
	}
	return all
}

func also(form func(json.RawMessage) (any, error), name string, from ...string) []field {
	return []field{{name: name, from: append(from, name), form: form}}
}

// fields are those of each kind: NAPI's answers (spec/napi.md section 3.1), and
// where its buckets have them under other names, those.
var fields = map[log.Kind][]field{
	log.KindNICTag: slices.Concat(same(text, "name", "uuid"), same(number, "mtu")),
	log.KindNetwork: slices.Concat(
		same(text, "uuid", "nic_tag", "subnet"), also(name, "name", "name", "name_str"), also(text, "family", "subnet_type"),
		also(address, "provision_start_ip", "provision_start_ip_addr"), also(address, "provision_end_ip", "provision_end_ip_addr"),
		same(number, "vlan_id", "mtu", "vnet_id"), same(boolean, "fabric", "internet_nat", "gateway_provisioned"),
		empty(address, "gateway"), empty(addresses, "resolvers"), empty(routes, "routes"), empty(text, "description"),
		[]field{{"owner_uuids", []string{"owner_uuids_arr", "owner_uuids", "owner_uuid"}, list, true}}, // owner_uuid: under /fabrics
	),
	log.KindNIC: slices.Concat(
		same(mac, "mac"), same(text, "belongs_to_type", "belongs_to_uuid", "owner_uuid", "state", "cn_uuid", "model"),
		also(boolean, "primary", "primary_flag"), same(parseMoment, "created_timestamp", "modified_timestamp"), same(number, "vlan_id"),
		empty(text, "network_uuid", "nic_tag"), []field{{"ip", []string{"ipaddr", "ip"}, address, true}},
		[]field{{"nic_tags_provided", []string{"nic_tags_provided_arr", "nic_tags_provided"}, list, true}},
		empty(boolean, "allow_dhcp_spoofing", "allow_ip_spoofing", "allow_mac_spoofing", "allow_restricted_traffic", "allow_unfiltered_promisc", "underlay"),
	),
	log.KindIP: slices.Concat(
		same(text, "network_uuid"), also(address, "ip", "ipaddr"), empty(boolean, "reserved"),
		empty(text, "belongs_to_type", "belongs_to_uuid", "owner_uuid"),
	),
	log.KindNetworkPool: slices.Concat(
		same(text, "uuid", "name"), same(list, "networks"), empty(text, "description"),
		[]field{{"owner_uuids", []string{"owner_uuids_arr", "owner_uuids"}, list, true}},
	),
	log.KindFabricVLAN:  slices.Concat(same(text, "owner_uuid", "name"), same(number, "vlan_id", "vnet_id"), empty(text, "description")),
	log.KindAggregation: slices.Concat(same(text, "belongs_to_uuid", "name", "lacp_mode"), same(macs, "macs"), empty(list, "nic_tags_provided")),
	log.KindRouter: slices.Concat(
		same(text, "uuid", "name", "owner_uuid"), same(list, "networks"), same(addresses, "addresses"), empty(text, "description", "vm_uuid"),
	),
}

// derived are fields that follow from others, or mean nothing outside of their bucket.
var derived = map[string]bool{
	"v": true, "_id": true, "_etag": true, "_key": true, "_mtime": true, "etag": true, "free": true, "id": true, "netmask": true,
	"use_strings": true, "ip_use_strings": true, "subnet_start": true, "subnet_start_ip": true, "subnet_bits": true, "subnet_type": true,
	"owner_uuid": true, "owner_uuids": true, "nic_tags_present": true, "family": true, "fabric": true, "gateway": true,
	"gateway_provisioned": true, "gateway_addr": true, "internet_nat": true, "mtu": true, "resolvers": true, "routes": true, "vlan_id": true,
	"vnet_id": true, "vnet_ids": true, "nic_tag": true, "nic_tags_provided": true, "primary": true, "ip": true, "ipaddr": true, "name": true,
	"name_str": true, "provision_start_ip": true, "provision_end_ip": true, "provision_start": true, "provision_end": true, "uuid": true, "cn_uuid": true,
}

// readObject reads an object of the source. The refusal names each bad field.
func (in *installation) readObject(kind log.Kind, theirs map[string]json.RawMessage, from string) (record, *log.Refusal) {
	ours := make(map[string]any, len(theirs))
	r := record{from: from}
	used := make(map[string]bool, len(theirs))
	refusal := &log.Refusal{Code: log.CodeInvalidParameters, Message: "Invalid parameters"}
	for _, f := range fields[kind] {
		set := false
		for _, name := range f.from {
			raw, there := theirs[name]
			used[name] = true
			if !there || set || isNone(raw) {
				continue
			}
			value, err := f.form(raw)
			if err != nil {
				refusal.Errors = append(refusal.Errors, log.FieldError{
					Field: name, Code: log.ElementInvalid, Message: err.Error(), Remedy: "mend it in NAPI, or in the file",
				})
			}
			ours[f.name], set = value, true
		}
		if set || f.empty {
			r.whole = append(r.whole, f.name)
		}
	}
	for name := range theirs {
		if !used[name] && !derived[name] {
			in.ignored[kind.String()+"."+name]++
		}
	}
	if refusal.Errors != nil {
		return r, refusal
	}
	r, bad := finish(kind, r, ours)
	r.given, r.whole = in.intern(r.given), in.intern(r.whole)
	return r, bad
}

// finish makes the object from the fields that were read.
func finish(kind log.Kind, r record, ours map[string]any) (record, *log.Refusal) {
	b, err := json.Marshal(ours)
	if err != nil {
		return r, &log.Refusal{Code: log.CodeInvalidParameters, Message: err.Error()}
	}
	r.object, r.given, err = log.ParseObject(kind, b)
	var bad *log.Refusal
	if errors.As(err, &bad) {
		return r, bad
	}
	slices.Sort(r.whole)
	if n, ok := r.object.(*log.Network); ok && !n.Fabric {
		n.VNetID, n.InternetNAT, n.GatewayProvisioned = 0, false, false // buckets have them of any network
		without := func(name string) bool {
			return name == "vnet_id" || name == "internet_nat" || name == "gateway_provisioned"
		}
		r.given, r.whole = slices.DeleteFunc(r.given, without), slices.DeleteFunc(r.whole, without)
	}
	if missing := key(r.object); missing != "" {
		return r, &log.Refusal{Code: log.CodeInvalidParameters, Message: "Invalid parameters", Errors: []log.FieldError{{
			Field: missing, Code: log.ElementMissing, Message: "Missing parameter", Remedy: "an object without it cannot be told from others",
		}}}
	}
	return r, nil
}

// key returns the field of an object's id that is missing, or "".
func key(o log.Object) string {
	switch o := o.(type) {
	case *log.NICTag:
		return ifNot("name", o.Name != "")
	case *log.Network:
		return ifNot("uuid", !o.UUID.IsZero())
	case *log.NIC:
		return ifNot("mac", !o.MAC.IsZero())
	case *log.IP:
		return ifNot("ip", o.IP.IsValid()) + ifNot("network_uuid", !o.NetworkUUID.IsZero() || !o.IP.IsValid())
	case *log.NetworkPool:
		return ifNot("uuid", !o.UUID.IsZero())
	case *log.FabricVLAN:
		return ifNot("owner_uuid", !o.OwnerUUID.IsZero())
	case *log.Aggregation:
		return ifNot("name", o.Name != "")
	case *log.Router:
		return ifNot("uuid", !o.UUID.IsZero())
	}
	return ""
}

func ifNot(name string, has bool) string {
	if has {
		return ""
	}
	return name
}

// isNone reports whether a value means "not set".
func isNone(raw json.RawMessage) bool {
	s := string(raw)
	return s == "null" || s == `""`
}

func text(raw json.RawMessage) (any, error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("%s is no string", clip(raw))
	}
	return s, nil
}

// name reads a network's name. In buckets it has a prefix, global or the owner, so that
// two owners can use the same name.
func name(raw json.RawMessage) (any, error) {
	v, err := text(raw)
	s, _ := v.(string)
	if prefix, rest, ok := strings.Cut(s, ":"); ok {
		if _, notUUID := log.ParseUUID(prefix); prefix == "global" || notUUID == nil {
			return rest, err
		}
	}
	return s, err
}

// number reads a whole number, or the text of one.
func number(raw json.RawMessage) (any, error) {
	n, err := strconv.ParseUint(bare(raw), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("%s is no whole number from 0 to 4294967295", clip(raw))
	}
	return n, nil
}

func bare(raw json.RawMessage) string { return strings.Trim(string(raw), `"`) }

func boolean(raw json.RawMessage) (any, error) {
	switch bare(raw) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return nil, fmt.Errorf("%s is neither true nor false", clip(raw))
}

// mac reads a MAC address in any of its text forms, or a number, as buckets have it.
func mac(raw json.RawMessage) (any, error) {
	s := bare(raw)
	if len(s) == 12 && raw[0] != '"' || !strings.ContainsAny(s, ":-abcdefABCDEF") && len(s) != 12 {
		return macOfNumber(s)
	}
	m, err := log.ParseMAC(s)
	return m.String(), err
}

func macOfNumber(s string) (string, error) {
	n, err := strconv.ParseUint(s, 10, 48)
	if err != nil {
		return "", fmt.Errorf("mac %q: want 12 hexadecimal digits, as in 90:b8:d0:01:02:03, or the number of 48 bits", s)
	}
	return log.MAC{byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}.String(), nil
}

// address reads an address, or the number of an IPv4 address.
func address(raw json.RawMessage) (any, error) {
	a, err := parseAddress(bare(raw))
	if err != nil {
		return nil, err
	}
	return a.String(), nil
}

func parseAddress(s string) (netip.Addr, error) {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return a, fmt.Errorf("%q is no IP address", s)
	}
	return a.Unmap(), nil
}

// elements reads a list: a JSON list, or a string separated by commas, which may begin
// and end with one.
func elements(raw json.RawMessage) ([]string, error) {
	all := []string{}
	if len(raw) > 0 && raw[0] == '[' {
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil {
			return nil, err
		}
		for _, item := range items {
			if len(item) > 0 && (item[0] == '[' || item[0] == '{') {
				return nil, fmt.Errorf("%s is no list of texts", clip(raw))
			}
			all = append(all, bare(item))
		}
		return all, nil
	}
	v, err := text(raw)
	if err != nil {
		return nil, fmt.Errorf("%s is no list", clip(raw))
	}
	for part := range strings.SplitSeq(v.(string), ",") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all, nil
}

func list(raw json.RawMessage) (any, error) { return elements(raw) }

func addresses(raw json.RawMessage) (any, error) {
	all, err := elements(raw)
	for i := range all {
		a, bad := parseAddress(all[i])
		if bad != nil {
			return nil, bad
		}
		all[i] = a.String()
	}
	return all, err
}

func macs(raw json.RawMessage) (any, error) {
	all, err := elements(raw)
	for i := range all {
		quoted, bad := json.Marshal(all[i])
		if _, isNumber := strconv.ParseUint(all[i], 10, 48); bad == nil && isNumber == nil {
			quoted = []byte(all[i])
		}
		m, bad := mac(quoted)
		if bad != nil {
			return nil, bad
		}
		all[i] = m.(string)
	}
	return all, err
}

// routes reads destinations and their gateways, each an address, a subnet, or,
// of a gateway, linklocal.
func routes(raw json.RawMessage) (any, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("%s is no object of destination to gateway", clip(raw))
	}
	all := make(map[string]string, len(m))
	for dst, gateway := range m {
		if a, err := parseAddress(dst); err == nil {
			dst = a.String()
		}
		gw := bare(gateway)
		if a, err := parseAddress(gw); err == nil {
			gw = a.String()
		}
		all[dst] = gw
	}
	return all, nil
}

// parseMoment reads a time, or milliseconds since 1970. 0 means no time.
func parseMoment(raw json.RawMessage) (any, error) {
	s := bare(raw)
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		const limit = 1 << 43 // the year 2248
		if ms < 0 || ms > limit {
			return nil, fmt.Errorf("%d ms are no time from 1970 to 2248", ms)
		}
		return log.TimeOf(time.UnixMilli(ms)).String(), nil
	}
	t, err := log.ParseTime(s)
	return t.String(), err
}

// clip returns the beginning of a text, for a message.
func clip(raw json.RawMessage) string {
	const most = 40
	if len(raw) > most {
		return string(bytes.ToValidUTF8(raw[:most], nil)) + "…"
	}
	return string(raw)
}
