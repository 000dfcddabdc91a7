package log

import "strconv"

// KindFabricVLAN is the kind of VLANs of fabrics.
const KindFabricVLAN Kind = 8

// FabricVLAN is a VLAN of an owner's fabric, which is one vnet. Field names:
// NAPI (spec/napi.md section 3.1).
type FabricVLAN struct {
	OwnerUUID   UUID     `json:"owner_uuid"`
	VLANID      uint32   `json:"vlan_id"` // 0, 2 to 4094
	VNetID      uint32   `json:"vnet_id"` // the owner's
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Labels      []string `json:"labels,omitempty"` // KEY=VALUE, sorted, at most MaxLabels; from FeatureDeclared on
	extra
}

// fabricVLANKind is the row of VLANs of fabrics in the table of kinds.
var fabricVLANKind = kind{
	Description: Description{
		Name: "fabric_vlan", Noun: "vlan", Title: "VLAN",
		IDField: "vlan_id", IDForm: IDPair,
		Immutable: []string{"owner_uuid", "vlan_id", "vnet_id"},
		Path:      "fabric_vlans",
		Filters:   []string{"labels", "name", "owner_uuid", "vlan_id", "vnet_id"},
		Command: Command{
			Name: "vlan", Usage: "VLANs of fabrics",
			Columns: []Column{{"OWNER", "owner_uuid"}, {"VLAN", "vlan_id"}, {"VNET", "vnet_id"}, {"NAME", "name"}},
			Example: Example{
				ID:     "930896af-bf8c-48d4-885c-6573a94b1853:4",
				Pick:   "vnet_id=1234",
				Create: "owner_uuid=OWNER vlan_id=4 name=web",
				Change: "name=web1",
			},
		},
	},
	docs: []FieldDoc{
		{Name: "owner_uuid", Text: "The owner of the fabric."},
		{Name: "vlan_id", Text: "The VLAN, 0 or 2 to 4094; with the owner it is the id."},
		{Name: "vnet_id", Text: "The VXLAN network id of the owner's fabric.", Default: "that of the owner's fabrics, else a free one"},
		{Name: "name", Text: "The name of the VLAN.", Default: "none"},
		{Name: "description", Text: "What people want to remember.", Default: "none"},
	},
	fields: fields[FabricVLAN](func(f *FabricVLAN, v visitor) {
		v.uuid("owner_uuid", &f.OwnerUUID)
		v.u32("vlan_id", &f.VLANID)
		v.u32("vnet_id", &f.VNetID)
		v.str("name", &f.Name)
		v.str("description", &f.Description)
		labels(v, &f.Labels)
	}),
	late: late[FabricVLAN]{{1, FeatureDeclared, func(f *FabricVLAN) bool { return len(f.Labels) == 0 }}},
}

// Kind implements Object.
func (*FabricVLAN) Kind() Kind { return KindFabricVLAN }

// ID implements Object: OWNER:VLAN.
func (f *FabricVLAN) ID() string { return FabricVLANID(f.OwnerUUID, f.VLANID) }

// FabricVLANID is the id of an owner's VLAN.
func FabricVLANID(owner UUID, vlan uint32) string {
	return owner.String() + ":" + strconv.FormatUint(uint64(vlan), 10)
}

// LabelList implements Labelled.
func (f *FabricVLAN) LabelList() *[]string { return &f.Labels }
