package log

// KindNICTag is the kind of NIC tags.
const KindNICTag Kind = 1

// NICTag names a physical network; it bounds the MTU of the networks on it.
// Field names: NAPI (spec/napi.md section 3.1).
type NICTag struct {
	Name string `json:"name"` // the id: 1 to 31 of [A-Za-z0-9_]
	UUID UUID   `json:"uuid"`
	MTU  uint32 `json:"mtu"` // bytes, 1500 to 9000
	// ReportedBy is the server from whose sysinfo the tag was made, from FeatureTriton on;
	// not set of a tag that an operator or a program made.
	ReportedBy UUID     `json:"reported_by,omitzero"`
	Labels     []string `json:"labels,omitempty"` // KEY=VALUE, sorted, at most MaxLabels; from FeatureDeclared on
	extra
}

// nicTagKind is the row of NIC tags in the table of kinds.
var nicTagKind = kind{
	Description: Description{
		Name: "nic_tag", Noun: "nic tag", Title: "NIC tag",
		IDField: "name", IDForm: IDText,
		Immutable: []string{"name", "uuid", "reported_by"},
		Drawn:     "uuid",
		Path:      "nic_tags",
		Filters:   []string{"labels", "mtu", "uuid"},
		Command: Command{
			Name: "tag", Usage: "NIC tags: the physical networks",
			Columns: []Column{{"NAME", "name"}, {"MTU", "mtu"}, {"UUID", "uuid"}},
			Example: Example{
				ID:     "external",
				Pick:   "mtu=1500",
				Create: "name=external mtu=1500",
				Change: "mtu=9000",
			},
		},
	},
	docs: []FieldDoc{
		{Name: "name", Text: "The name of the tag, of letters, digits and underscores; it is the id."},
		{Name: "uuid", Text: "A UUID that other programs know the tag by.", Default: "one that the servers choose"},
		{Name: "mtu", Text: "The largest MTU of the networks on the tag.", Unit: "bytes", Default: "1500"},
		{Name: "reported_by", Text: "The server from whose sysinfo the tag was made; none if people made it.", By: SetByNodes, Refers: KindServer},
	},
	fields: fields[NICTag](func(t *NICTag, v visitor) {
		v.str("name", &t.Name)
		v.uuid("uuid", &t.UUID)
		v.u32("mtu", &t.MTU)
		if takes(v, FeatureTriton) {
			v.uuid("reported_by", &t.ReportedBy)
		}
		labels(v, &t.Labels)
	}),
	late:  late[NICTag]{{1, FeatureTriton, func(t *NICTag) bool { return t.ReportedBy.IsZero() }}, {1, FeatureDeclared, func(t *NICTag) bool { return len(t.Labels) == 0 }}},
	scope: scopes[NICTag](func(_ *NICTag) Scope { return AllScope() }),
}

// Kind implements Object.
func (*NICTag) Kind() Kind { return KindNICTag }

// ID implements Object: the tag's name.
func (t *NICTag) ID() string { return t.Name }

// LabelList implements Labelled.
func (t *NICTag) LabelList() *[]string { return &t.Labels }
