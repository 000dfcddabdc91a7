package log

import "net/netip"

// KindIP is the kind of IPs.
const KindIP Kind = 9

// IP is what an address of a network carries beyond "a NIC uses it": that it is
// reserved, or belongs to something that has no NIC. An address without any of
// this has no object. Field names: NAPI (spec/napi.md section 3.1).
type IP struct {
	NetworkUUID   UUID       `json:"network_uuid"`
	IP            netip.Addr `json:"ip"`
	Reserved      bool       `json:"reserved"` // never handed out by provisioning
	BelongsToType string     `json:"belongs_to_type,omitempty"`
	BelongsToUUID UUID       `json:"belongs_to_uuid,omitzero"` // empty while a NIC has the address
	OwnerUUID     UUID       `json:"owner_uuid,omitzero"`
	Labels        []string   `json:"labels,omitempty"` // KEY=VALUE, sorted, at most MaxLabels; from FeatureDeclared on
	extra
}

// ipKind is the row of IPs in the table of kinds.
var ipKind = kind{
	Description: Description{
		Name: "ip", Noun: "IP", Title: "IP",
		IDField: "ip", IDForm: IDPair,
		Options: []Option{OptionAnyOwner, OptionNoNIC},
		Path:    "ips",
		Filters: []string{"belongs_to_uuid", "ip", "labels", "network_uuid", "owner_uuid", "reserved"},
		Command: Command{
			Name: "ip", Usage: "addresses that are reserved, or belong to what has no NIC",
			Columns: []Column{{"NETWORK", "network_uuid"}, {"IP", "ip"}, {"RESERVED", "reserved"}, {"TYPE", "belongs_to_type"}, {"BELONGS TO", "belongs_to_uuid"}, {"OWNER", "owner_uuid"}},
			Example: Example{
				ID:     "0e70de36-a40b-4ac0-9429-819f5ff82011:10.1.0.9",
				Pick:   "reserved=true",
				Create: "network_uuid=NETWORK ip=10.1.0.9 reserved=true",
				Change: "reserved=false",
			},
		},
	},
	docs: []FieldDoc{
		{Name: "network_uuid", Text: "The network of the address; with the address it is the id.", Document: "network", Refers: KindNetwork},
		{Name: "ip", Text: "The address."},
		{Name: "reserved", Text: "The address is never given to a NIC that names none.", Default: "false"},
		{Name: "belongs_to_type", Text: "What the address belongs to while no NIC has it, as in zone, server or other.", Default: "none"},
		{Name: "belongs_to_uuid", Text: "The UUID of what the address belongs to while no NIC has it.", Default: "none"},
		{Name: "owner_uuid", Text: "The owner of the address.", Default: "none"},
	},
	fields: fields[IP](func(i *IP, v visitor) {
		v.uuid("network_uuid", &i.NetworkUUID)
		v.addr("ip", &i.IP)
		v.boolean("reserved", &i.Reserved)
		v.str("belongs_to_type", &i.BelongsToType)
		v.uuid("belongs_to_uuid", &i.BelongsToUUID)
		v.uuid("owner_uuid", &i.OwnerUUID)
		labels(v, &i.Labels)
	}),
	late: late[IP]{{1, FeatureDeclared, func(i *IP) bool { return len(i.Labels) == 0 }}},
}

// Kind implements Object.
func (*IP) Kind() Kind { return KindIP }

// ID implements Object: NETWORK:ADDRESS.
func (i *IP) ID() string { return IPID(i.NetworkUUID, i.IP) }

// IPID is the id of the IP object of a network's address.
func IPID(network UUID, ip netip.Addr) string { return network.String() + ":" + ip.String() }

// LabelList implements Labelled.
func (i *IP) LabelList() *[]string { return &i.Labels }
