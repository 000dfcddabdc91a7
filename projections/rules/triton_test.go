package rules

import (
	"fmt"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/internal/worldtest"
)

// TestPropertiesOfVMs: they are a JSON object of a bounded size, and a compute node, which
// may report many VMs, has less room for each.
func TestPropertiesOfVMs(t *testing.T) {
	of := func(n int) string { return `{\"a\":\"` + strings.Repeat("x", n-len(`{"a":""}`)) + `\"}` }
	for _, c := range []struct {
		cn         bool
		text, want string
	}{
		{false, `{}`, ``},
		{false, `[]`, `properties: it is not JSON`},
		{false, `{`, `properties: it is not JSON`},
		{false, `{\"a\":` + strings.Repeat("[", 32-1) + strings.Repeat("]", 32-1) + `}`, ``},
		{true, `{\"a\":` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + `}`, `properties: they are nested deeper than 32`},
		{false, of(log.MaxProperties), ``},
		{false, of(log.MaxProperties + 1), `properties: 131073 bytes are over 131072`},
		{true, of(log.MaxNodeProperties), ``},
		{true, of(log.MaxNodeProperties + 1), `properties: 16385 bytes are over 16384`},
	} {
		w := worldtest.Settled(t, Decide)
		change := w.Change(changetest.Op(t, fmt.Sprintf(`update vm #21# {"properties": "%s"}`, c.text)))
		if c.cn {
			rec, _ := w.State.Get(log.KindVM, changetest.Expand("#21#"))
			change.By = log.Author{Role: log.RoleCN, CN: rec.Object.(*log.VM).ServerUUID}
		}
		r := w.Try(change).Refusal
		switch {
		case c.want == "" && r != nil:
			t.Errorf("%.20s of %d bytes, by a node: %t: %v", c.text, len(c.text), c.cn, r)
		case c.want != "" && (r == nil || !strings.Contains(r.Error(), c.want)):
			t.Errorf("%.20s of %d bytes, by a node: %t: %v, want %s", c.text, len(c.text), c.cn, r, c.want)
		}
	}
}

// TestPropertiesThatANodeKeeps: metadata and role tags that others wrote do not count as a
// node's, while it leaves them as they are; and a node may report properties of a VM that
// it makes.
func TestPropertiesThatANodeKeeps(t *testing.T) {
	large := strings.Repeat("x", log.MaxNodeProperties)
	w := worldtest.Settled(t, Decide)
	rec, _ := w.State.Get(log.KindVM, changetest.Expand("#21#"))
	cn := rec.Object.(*log.VM).ServerUUID
	try := func(by bool, op log.Op) *log.Refusal {
		change := w.Change(op)
		if by {
			change.By = log.Author{Role: log.RoleCN, CN: cn}
		}
		return w.Try(change).Refusal
	}
	set := func(text string) log.Op {
		return log.Op{Action: log.Update, Kind: log.KindVM, ID: changetest.Expand("#21#"), Set: []string{"properties"}, Object: &log.VM{Properties: text}}
	}
	metadata := `{"customer_metadata":{"a":"` + large + `"}`
	for _, c := range []struct {
		cn    bool
		text  string
		taken bool
	}{
		{true, metadata + `}`, false},
		{false, metadata + `}`, true},
		{true, metadata + `,"tags":{"b":1}}`, true},
		{true, metadata + `,"tags":{"b":"` + large + `"}}`, false},
		{true, `{"customer_metadata":{"b":"` + large + `"}}`, false},
		{true, `{"tags":{"b":1}}`, true},
	} {
		if r := try(c.cn, set(c.text)); (r == nil) != c.taken {
			t.Errorf("%.60s… of %d bytes, by a node: %t: %v", c.text, len(c.text), c.cn, r)
		}
	}
	made := &log.VM{UUID: log.UUID{0xee, 15: 1}, OwnerUUID: rec.Object.(*log.VM).OwnerUUID, ServerUUID: cn, State: "running", Properties: `{"tags":{"a":1}}`}
	create := log.Op{Action: log.Create, Kind: log.KindVM, Set: []string{"owner_uuid", "properties", "server_uuid", "state", "uuid"}, Object: made}
	if r := try(true, create); r != nil {
		t.Errorf("a VM with properties that a node makes: %v", r)
	}
}

// TestRoleTagsOfANode: a compute node forges no role tags, neither of a VM that it makes nor
// of one that it has, and takes none away; in whatever letters their name is written.
func TestRoleTagsOfANode(t *testing.T) {
	w := worldtest.Settled(t, Decide)
	rec, _ := w.State.Get(log.KindVM, changetest.Expand("#21#"))
	cn := rec.Object.(*log.VM).ServerUUID
	try := func(cn log.UUID, op log.Op) *log.Refusal {
		change := w.Change(op)
		if !cn.IsZero() {
			change.By = log.Author{Role: log.RoleCN, CN: cn}
		}
		return w.Try(change).Refusal
	}
	set := func(text string) log.Op {
		return log.Op{Action: log.Update, Kind: log.KindVM, ID: changetest.Expand("#21#"), Set: []string{"properties"}, Object: &log.VM{Properties: text}}
	}
	for _, c := range []struct {
		cn    log.UUID
		text  string
		taken bool
	}{
		{cn, `{"role_tags":["admin"]}`, false},
		{cn, `{"role\u005ftags":["admin"]}`, false},
		{log.UUID{}, `{"role_tags":["r"]}`, true},
		{cn, `{"role_tags":["r"],"tags":{"a":1}}`, true},
		{cn, `{"role_tags":["r","admin"]}`, false},
		{cn, `{"role_tags":["r"],"role_tags":["admin"]}`, false},
		{cn, `{"role_tags":["admin"],"ROLE_TAGS":["r"]}`, false},
		{cn, `{"tags":{"a":1}}`, false},
	} {
		if r := try(c.cn, set(c.text)); (r == nil) != c.taken {
			t.Errorf("%s: %v", c.text, r)
		}
	}
	made := &log.VM{UUID: log.UUID{0xee, 15: 2}, OwnerUUID: rec.Object.(*log.VM).OwnerUUID, ServerUUID: cn, State: "running", Properties: `{"role_tags":["admin"]}`}
	create := log.Op{Action: log.Create, Kind: log.KindVM, Set: []string{"owner_uuid", "properties", "server_uuid", "state", "uuid"}, Object: made}
	if r := try(cn, create); r == nil {
		t.Error("a VM with role tags that a node makes was taken")
	}
}
