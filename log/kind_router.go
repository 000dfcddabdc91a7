package log

import "net/netip"

// KindRouter is the kind of routers.
const KindRouter Kind = 11

// Router joins fabric networks of one owner: each gets routes to the subnets of
// the others through the router's address on it. Field names: RFD 120; what it
// has none for are ours.
type Router struct {
	UUID        UUID      `json:"uuid"` // the id
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	OwnerUUID   UUID      `json:"owner_uuid"`
	Family      string    `json:"family"`           // that of its networks
	Networks    []UUID    `json:"networks"`         // two or more
	Addresses   Addresses `json:"addresses"`        // the router's own, one on each of Networks
	VNets       []uint32  `json:"vnet_ids"`         // those of Networks, sorted
	VMUUID      UUID      `json:"vm_uuid,omitzero"` // the VM that forwards, if it is known
	CNUUID      UUID      `json:"cn_uuid,omitzero"` // the CN that this VM is on
	Labels      []string  `json:"labels,omitempty"` // KEY=VALUE, sorted, at most MaxLabels; from FeatureDeclared on
	extra
}

// routerKind is the row of routers in the table of kinds.
var routerKind = kind{
	Description: Description{
		Name: "router", Noun: "router", Title: "Router",
		IDField: "uuid", IDForm: IDUUID,
		Immutable: []string{"uuid", "owner_uuid"},
		Path:      "fabric_routers",
		Filters:   []string{"cn_uuid", "labels", "name", "networks", "owner_uuid", "uuid", "vm_uuid"},
		Command: Command{
			Name: "router", Usage: "routers: they join fabric networks of one owner",
			Columns: []Column{{"UUID", "uuid"}, {"NAME", "name"}, {"OWNER", "owner_uuid"}, {"NETWORKS", "networks"}, {"ADDRESSES", "addresses"}, {"VM", "vm_uuid"}},
			Example: Example{
				ID:     "0e70de36-a40b-4ac0-9429-819f5ff82013",
				Pick:   "name=edge",
				Create: "name=edge networks=NETWORK,NETWORK vm_uuid=VM",
				Change: "description=north",
			},
		},
	},
	docs: []FieldDoc{
		{Name: "uuid", Text: "The id of the router.", Default: "one that the servers choose"},
		{Name: "name", Text: "The name of the router."},
		{Name: "description", Text: "What people want to remember.", Default: "none"},
		{Name: "owner_uuid", Text: "The owner of the router and of its networks.", Default: "that of the networks"},
		{Name: "family", Text: "The family of its networks.", Values: []string{"ipv4", "ipv6"}, By: SetByDeciding},
		{Name: "networks", Text: "The fabric networks that it joins, 2 to 32, all of its owner.", Refers: KindNetwork},
		{Name: "addresses", Text: "Its address on each of the networks, in their order.", Default: "free ones"},
		{Name: "vnet_ids", Text: "The vnets of its networks.", By: SetByDeciding},
		{Name: "vm_uuid", Text: "The VM that forwards.", Default: "none", Document: "vm", Refers: KindVM},
		{Name: "cn_uuid", Text: "The compute node that this VM is on.", By: SetByDeciding, Refers: KindServer},
	},
	fields: fields[Router](func(r *Router, v visitor) {
		v.uuid("uuid", &r.UUID)
		v.str("name", &r.Name)
		v.str("description", &r.Description)
		v.uuid("owner_uuid", &r.OwnerUUID)
		v.str("family", &r.Family)
		v.uuids("networks", &r.Networks)
		v.addrs("addresses", (*[]netip.Addr)(&r.Addresses))
		v.u32s("vnet_ids", &r.VNets)
		v.uuid("vm_uuid", &r.VMUUID)
		v.uuid("cn_uuid", &r.CNUUID)
		labels(v, &r.Labels)
	}),
	late: late[Router]{{1, FeatureDeclared, func(r *Router) bool { return len(r.Labels) == 0 }}},
}

// Kind implements Object.
func (*Router) Kind() Kind { return KindRouter }

// ID implements Object: the router's UUID.
func (r *Router) ID() string { return r.UUID.String() }

// LabelList implements Labelled.
func (r *Router) LabelList() *[]string { return &r.Labels }
