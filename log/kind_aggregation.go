package log

// KindAggregation is the kind of aggregations.
const KindAggregation Kind = 10

// Aggregation is a group of a server's NICs that act as one link. Field names:
// NAPI (spec/napi.md section 3.1).
type Aggregation struct {
	BelongsToUUID   UUID     `json:"belongs_to_uuid"` // the server: that of its NICs
	Name            string   `json:"name"`            // ends in a digit
	LACPMode        string   `json:"lacp_mode"`       // off, active or passive
	MACs            []MAC    `json:"macs"`            // of NICs
	NICTagsProvided []string `json:"nic_tags_provided,omitempty"`
	Labels          []string `json:"labels,omitempty"` // KEY=VALUE, sorted, at most MaxLabels; from FeatureDeclared on
	extra
}

// aggregationKind is the row of aggregations in the table of kinds.
var aggregationKind = kind{
	Description: Description{
		Name: "aggregation", Noun: "aggregation", Title: "Aggregation",
		IDField: "id", IDForm: IDText,
		Immutable: []string{"name", "belongs_to_uuid"},
		CN: &Rights{
			Create: []string{"lacp_mode", "macs", "name", "nic_tags_provided"},
			Update: []string{"lacp_mode", "macs", "nic_tags_provided"},
			Why:    "its bonds, of its own NICs, as its sysinfo has them",
		},
		Path:    "server_aggregations",
		Filters: []string{"belongs_to_uuid", "labels", "lacp_mode", "macs", "name"},
		Command: Command{
			Name: "aggregation", Usage: "groups of NICs of a server that act as one link",
			Columns: []Column{{"SERVER", "belongs_to_uuid"}, {"NAME", "name"}, {"LACP", "lacp_mode"}, {"MACS", "macs"}, {"TAGS", "nic_tags_provided"}},
			Example: Example{
				ID:     "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01-aggr0",
				Pick:   "lacp_mode=active",
				Create: "name=aggr0 macs=MAC,MAC",
				Change: "lacp_mode=passive",
			},
		},
	},
	docs: []FieldDoc{
		{Name: "belongs_to_uuid", Text: "The server whose NICs they are; with the name it is the id.", Default: "that of the NICs", Document: "server", Refers: KindServer},
		{Name: "name", Text: "The name of the aggregation, which ends in a digit, as in aggr0."},
		{Name: "lacp_mode", Text: "How the links negotiate.", Default: "off", Values: []string{"off", "active", "passive"}},
		{Name: "macs", Text: "The NICs of the aggregation, 1 to 16 of one server."},
		{Name: "nic_tags_provided", Text: "The NIC tags that it carries.", Default: "none", Refers: KindNICTag},
	},
	fields: fields[Aggregation](func(a *Aggregation, v visitor) {
		v.uuid("belongs_to_uuid", &a.BelongsToUUID)
		v.str("name", &a.Name)
		v.str("lacp_mode", &a.LACPMode)
		v.macs("macs", &a.MACs)
		v.strs("nic_tags_provided", &a.NICTagsProvided)
		labels(v, &a.Labels)
	}),
	late:  late[Aggregation]{{1, FeatureDeclared, func(a *Aggregation) bool { return len(a.Labels) == 0 }}},
	scope: scopes[Aggregation](func(a *Aggregation) Scope { return onCN(a.BelongsToUUID) }),
}

// Kind implements Object.
func (*Aggregation) Kind() Kind { return KindAggregation }

// ID implements Object: SERVER-NAME, as NAPI has it.
func (a *Aggregation) ID() string { return a.BelongsToUUID.String() + "-" + a.Name }

// LabelList implements Labelled.
func (a *Aggregation) LabelList() *[]string { return &a.Labels }
