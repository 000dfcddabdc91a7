package log

// KindNetworkPool is the kind of network pools.
const KindNetworkPool Kind = 7

// NetworkPool is a list of networks of one family from which a NIC gets the
// first that has room. Its NIC tags are those of its networks. Field names:
// NAPI (spec/napi.md section 3.1).
type NetworkPool struct {
	UUID        UUID     `json:"uuid"` // the id
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Family      string   `json:"family"`   // that of its networks
	Networks    []UUID   `json:"networks"` // in the order in which they are filled
	OwnerUUIDs  []UUID   `json:"owner_uuids,omitempty"`
	Labels      []string `json:"labels,omitempty"` // KEY=VALUE, sorted, at most MaxLabels; from FeatureDeclared on
	extra
}

// networkPoolKind is the row of network pools in the table of kinds.
var networkPoolKind = kind{
	Description: Description{
		Name: "network_pool", Noun: "network pool", Title: "Network pool",
		IDField: "uuid", IDForm: IDUUID,
		Immutable: []string{"uuid"},
		Path:      "pools",
		Filters:   []string{"family", "labels", "name", "networks", "uuid"},
		Command: Command{
			Name: "pool", Usage: "network pools: a NIC gets the first network that has room",
			Columns: []Column{{"UUID", "uuid"}, {"NAME", "name"}, {"FAMILY", "family"}, {"NETWORKS", "networks"}},
			Example: Example{
				ID:     "0e70de36-a40b-4ac0-9429-819f5ff82012",
				Pick:   "family=ipv4",
				Create: "name=public networks=NETWORK,NETWORK",
				Change: "description=racks1-4",
			},
		},
	},
	docs: []FieldDoc{
		{Name: "uuid", Text: "The id of the pool.", Default: "one that the servers choose"},
		{Name: "name", Text: "The name of the pool."},
		{Name: "description", Text: "What people want to remember.", Default: "none"},
		{Name: "family", Text: "The family of its networks.", Values: []string{"ipv4", "ipv6"}, By: SetByDeciding},
		{Name: "networks", Text: "The networks, in the order in which they are filled, 1 to 64.", Refers: KindNetwork},
		{Name: "owner_uuids", Text: "The owners whose VMs may use the pool; none: all may.", Default: "none"},
	},
	fields: fields[NetworkPool](func(p *NetworkPool, v visitor) {
		v.uuid("uuid", &p.UUID)
		v.str("name", &p.Name)
		v.str("description", &p.Description)
		v.str("family", &p.Family)
		v.uuids("networks", &p.Networks)
		v.uuids("owner_uuids", &p.OwnerUUIDs)
		labels(v, &p.Labels)
	}),
	late: late[NetworkPool]{{1, FeatureDeclared, func(p *NetworkPool) bool { return len(p.Labels) == 0 }}},
}

// Kind implements Object.
func (*NetworkPool) Kind() Kind { return KindNetworkPool }

// ID implements Object: the pool's UUID.
func (p *NetworkPool) ID() string { return p.UUID.String() }

// LabelList implements Labelled.
func (p *NetworkPool) LabelList() *[]string { return &p.Labels }
