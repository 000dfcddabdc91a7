package log

// KindSetting is the kind of settings.
const KindSetting Kind = 14

// Setting is one thing about the cluster that people choose while it runs. Which
// there are, and what each may be, package projections knows.
type Setting struct {
	Name  string `json:"name"` // the id
	Value string `json:"value"`
	extra
}

// What happens to a network of a vnet whose MTU the underlay of a compute node (CN) does
// not carry, when the MTU is written: the setting fabric.mtu, from FeaturePerNode on. In
// each case the links of a CN get no more than its own underlay carries.
const (
	FabricMTUWarn   = "warn"   // it is accepted, and the answer warns
	FabricMTUClamp  = "clamp"  // it gets the largest MTU that fits
	FabricMTURefuse = "refuse" // the write is refused
)

// FabricMTUs are the values of fabric.mtu; the first is the default.
var FabricMTUs = []string{FabricMTUWarn, FabricMTUClamp, FabricMTURefuse}

// settingKind is the row of settings in the table of kinds.
var settingKind = kind{
	Description: Description{
		Name: "setting", Noun: "setting", Title: "Setting",
		IDField: "name", IDForm: IDText,
		Immutable: []string{"name"},
		Guarded:   true,
		Path:      "settings",
		Filters:   []string{"value"},
		Command: Command{
			Name: "setting", Usage: "what the cluster is told about itself: napi.network_immutable (true: networks refuse new VLANs, tags and fabric gateways, as NAPI does), fabric.self_provision (off, joined or any: which compute nodes make NICs on fabrics by themselves), fabric.mtu (warn, clamp or refuse: what happens to a fabric network whose MTU the underlay of a compute node does not carry), napi.strict (true: writes to NAPI with fields that it does not know are refused), cnapi.allocation, cnapi.boot_default and cnapi.platforms (docs/triton.md)",
			Columns: []Column{{"NAME", "name"}, {"VALUE", "value"}},
			Example: Example{
				ID:     "napi.network_immutable",
				Pick:   "value=true",
				Create: "name=napi.network_immutable value=true",
				Change: "value=false",
			},
		},
	},
	docs: []FieldDoc{
		{Name: "name", Text: "The name of the setting, which is the id."},
		{Name: "value", Text: "Its value; docs/api.md has what each setting may have."},
	},
	fields: fields[Setting](func(s *Setting, v visitor) {
		v.str("name", &s.Name)
		v.str("value", &s.Value)
	}),
}

// Kind implements Object.
func (*Setting) Kind() Kind { return KindSetting }

// ID implements Object: the setting's name.
func (s *Setting) ID() string { return s.Name }
