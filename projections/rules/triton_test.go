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
