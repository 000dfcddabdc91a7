package log

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func contentOfChange(t testing.TB, c *Change) Content {
	t.Helper()
	content, err := NewEncoder().Content(c)
	if err != nil || content.IsZero() {
		t.Fatalf("content %v, error %v", content, err)
	}
	return content
}

func nicChange(action Action, nic *NIC, set ...string) *Change {
	return &Change{ID: UUID{1}, Ops: []Op{{Action: action, Kind: KindNIC, ID: "90:b8:d0:01:02:03", Set: set, Object: nic}}}
}

// What is not what a change asks for does not show in its content, and all else does.
func TestContent(t *testing.T) {
	t.Parallel()
	base := func() *Change {
		return nicChange(Update, &NIC{NICTag: "external", VLANID: 900, State: "running"}, "vlan_id", "nic_tag")
	}
	want := contentOfChange(t, base())
	same := map[string]func(c *Change){
		"stamps":            func(c *Change) { c.Time, c.Seed, c.Content = 5, 6, Content{1} },
		"who asks":          func(c *Change) { c.Actor, c.By = "cn:x", Author{Role: RoleCN, CN: UUID{9}} },
		"what it reverts":   func(c *Change) { c.Reverts = Reverts{{1, 2}} },
		"another id":        func(c *Change) { c.ID = UUID{2} },
		"order of fields":   func(c *Change) { c.Ops[0].Set = []string{"nic_tag", "vlan_id"} },
		"a field not meant": func(c *Change) { c.Ops[0].Object.(*NIC).State = "stopped" },
		"an empty last field": func(c *Change) {
			c.Ops[0].Object.tail().raw = [][]byte{{codeNil}, {codeFixStr}, {codeBin8, 0}, {0}, {codeFixArray}}
		},
	}
	for name, alter := range same {
		c := base()
		alter(c)
		if contentOfChange(t, c) != want {
			t.Errorf("%s shows in the content", name)
		}
	}
	seen := map[Content]string{want: "none"}
	for name, alter := range map[string]func(c *Change){
		"a value": func(c *Change) { c.Ops[0].Object.(*NIC).VLANID = 15 },
		"a field set to none": func(c *Change) {
			c.Ops[0].Set = []string{"vlan_id", "nic_tag", "state"}
			c.Ops[0].Object.(*NIC).State = ""
		},
		"one field more":     func(c *Change) { c.Ops[0].Set = []string{"vlan_id", "nic_tag", "state"} },
		"one field less":     func(c *Change) { c.Ops[0].Set = []string{"vlan_id"} },
		"the object":         func(c *Change) { c.Ops[0].ID = "90:b8:d0:01:02:04" },
		"the action":         func(c *Change) { c.Ops[0].Action = Create },
		"if-match":           func(c *Change) { c.Ops[0].IfMatch = 3 },
		"if-seq":             func(c *Change) { c.Ops[0].IfSeq = 3 },
		"an option":          func(c *Change) { c.Ops[0].Options = []Option{OptionAnyOwner} },
		"an operation more":  func(c *Change) { c.Ops = append(c.Ops, c.Ops[0]) },
		"no object":          func(c *Change) { c.Ops[0].Object = nil },
		"an unknown field":   func(c *Change) { c.Ops[0].Object.tail().raw = [][]byte{{7}} },
		"two unknown fields": func(c *Change) { c.Ops[0].Object.tail().raw = [][]byte{{codeNil}, {7}} },
	} {
		c := base()
		alter(c)
		got := contentOfChange(t, c)
		if other, there := seen[got]; there {
			t.Errorf("%s has the content of %s", name, other)
		}
		seen[got] = name
	}
	// A create means all its fields.
	a, b := nicChange(Create, &NIC{VLANID: 15}, "vlan_id"), nicChange(Create, &NIC{VLANID: 15, State: "running"}, "vlan_id")
	if contentOfChange(t, a) == contentOfChange(t, b) {
		t.Error("creates of different objects have one content")
	}
}

// A change has one content, however often it is encoded and read, and a field of a
// newer program is what it was when it is known.
func TestContentSurvivesTheWay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nic := &NIC{VLANID: rapid.Uint32().Draw(t, "vlan_id"), NICTag: rapid.String().Draw(t, "tag"), State: rapid.String().Draw(t, "state")}
		set := rapid.SliceOfDistinct(rapid.SampledFrom(FieldNames(KindNIC)), rapid.ID[string]).Draw(t, "set")
		c := nicChange(rapid.SampledFrom([]Action{Create, Update}).Draw(t, "action"), nic, set...)
		if rapid.Bool().Draw(t, "newer") {
			nic.tail().raw = [][]byte{{7}, {codeNil}}
		}
		want, err := NewEncoder().Content(c)
		if err != nil {
			t.Fatal(err)
		}
		c.Content = want
		b, err := NewEncoder().Change(c)
		if err != nil {
			t.Fatal(err)
		}
		read, err := DecodeChange(b)
		if err != nil {
			t.Fatal(err)
		}
		if read.Content != want {
			t.Errorf("the content is read as %x, want %x", read.Content, want)
		}
		slices.Sort(read.Ops[0].Set)
		if got, err := NewEncoder().Content(read); err != nil || got != want {
			t.Errorf("after a round trip the content is %x, %v, want %x", got, err, want)
		}
	})
}

// The JSON form of an update has the content of its binary form.
func TestContentOfJSON(t *testing.T) {
	t.Parallel()
	object, set, err := ParseObject(KindNIC, json.RawMessage(`{"nic_tag": "external", "vlan_id": 900}`))
	if err != nil {
		t.Fatal(err)
	}
	parsed := nicChange(Update, object.(*NIC), set...)
	built := nicChange(Update, &NIC{MAC: MAC{1}, NICTag: "external", VLANID: 900}, "nic_tag", "vlan_id")
	if contentOfChange(t, parsed) != contentOfChange(t, built) {
		t.Error("an update in JSON has another content than in the binary form")
	}
}

func TestRequestContent(t *testing.T) {
	t.Parallel()
	want := RequestContent("PUT", "/vms/1", "", []byte(`{"a": 1.0, "b": {"c": [1, 2]}}`))
	if got := RequestContent("PUT", "/vms/1", "", []byte(`{"b":{"c":[1,2]},"a":1.0}`)); got != want {
		t.Error("blanks or the order of keys show")
	}
	for _, other := range []Content{
		RequestContent("POST", "/vms/1", "", []byte(`{"a": 1.0, "b": {"c": [1, 2]}}`)),
		RequestContent("PUT", "/vms/2", "", []byte(`{"a": 1.0, "b": {"c": [1, 2]}}`)),
		RequestContent("PUT", "/vms/1", "x=1", []byte(`{"a": 1.0, "b": {"c": [1, 2]}}`)),
		RequestContent("PUT", "/vms/1", "", []byte(`{"a": 1.0, "b": {"c": [2, 1]}}`)),
		RequestContent("PUT", "/vms/1", "", []byte(`{"a": 1.0, "b": {"c": [1, 2]}} {}`)),
		RequestContent("PUT", "/vms/1", "", nil),
	} {
		if other == want {
			t.Error("two requests have one content")
		}
	}
}

func TestAsker(t *testing.T) {
	t.Parallel()
	of := func(role Role, cn byte, actor string) Asker {
		return (&Change{By: Author{Role: role, CN: UUID{cn}}, Actor: actor}).Asker()
	}
	for _, pair := range [][2]Asker{
		{of(RoleTrusted, 0, "anonymous@10.0.0.1"), of(RoleTrusted, 0, "anonymous@[::1]:50")},
		{of(RoleForeign, 0, "foreign:10.0.0.1"), of(RoleForeign, 0, "foreign:10.0.0.2")},
		{of(RoleCN, 3, "cn:3"), of(RoleCN, 3, "")},
	} {
		if pair[0] != pair[1] {
			t.Error("one who asks is taken for two")
		}
	}
	all := []Asker{
		{},
		of(RoleTrusted, 0, ""), of(RoleTrusted, 0, "operator:ada"), of(RoleTrusted, 0, "operator:eve"), of(RoleTrusted, 0, "anonymous@1"),
		of(RoleCN, 1, ""), of(RoleCN, 2, ""), of(RoleForeign, 0, ""), of(RoleReader, 0, "reader:ada"), of(RoleReader, 0, ""),
	}
	for i := range all {
		if slices.Contains(all[:i], all[i]) {
			t.Errorf("number %d is one before", i)
		}
	}
}
