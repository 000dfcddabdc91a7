package rules

import (
	"strings"
	"testing"

	"rutter/log"
	"rutter/projections"
)

func TestGrants(t *testing.T) {
	owner := log.UUID{1}
	for name, c := range map[string]struct {
		grant log.Grant
		want  string // part of the refusal; "": taken
	}{
		"a reader":                   {log.Grant{Subject: "reader:acme", OwnerUUIDs: []log.UUID{owner}}, ""},
		"a reader of nobody":         {log.Grant{Subject: "reader:acme"}, "owner_uuids"},
		"a reader with surfaces":     {log.Grant{Subject: "reader:acme", OwnerUUIDs: []log.UUID{owner}, Read: []string{"napi"}}, "read"},
		"an operator":                {log.Grant{Subject: "operator:ada", OwnerUUIDs: []log.UUID{owner}}, "subject"},
		"an address":                 {log.Grant{Subject: "foreign:10.99.99.30", Read: []string{"napi"}, Write: []string{"vmapi"}}, ""},
		"a network":                  {log.Grant{Subject: "foreign:10.99.0.0/16", Read: []string{"cnapi"}}, ""},
		"a network with host bits":   {log.Grant{Subject: "foreign:10.99.99.30/16", Read: []string{"cnapi"}}, "subject"},
		"an address of another form": {log.Grant{Subject: "foreign:2001:DB8::1", Read: []string{"cnapi"}}, "subject"},
		"no such surface":            {log.Grant{Subject: "foreign:10.99.99.30", Read: []string{"papi"}}, "read"},
		"nothing":                    {log.Grant{Subject: "foreign:10.99.99.30"}, "read"},
		"a foreign tenant":           {log.Grant{Subject: "foreign:10.99.99.30", OwnerUUIDs: []log.UUID{owner}, Read: []string{"napi"}}, "owner_uuids"},
	} {
		t.Run(name, func(t *testing.T) {
			s := projections.NewState()
			grant := c.grant
			change := &log.Change{ID: log.UUID{9}, Ops: []log.Op{{Action: log.Create, Kind: log.KindGrant, Object: &grant, Set: []string{"owner_uuids", "read", "subject", "write"}}}}
			_, result := Decide(s, change)
			switch {
			case result.Refusal == nil && c.want != "":
				t.Error("it was taken")
			case result.Refusal != nil && (c.want == "" || !strings.Contains(result.Refusal.Error()+fieldsOf(result.Refusal), c.want)):
				t.Errorf("refused: %v", result.Refusal)
			}
			for _, by := range []log.Author{{Role: log.RoleCN, CN: log.UUID{5}}, {Role: log.RoleForeign}, {Role: log.RoleReader}} {
				change.By = by
				if _, result := Decide(s, change); result.Refusal == nil || result.Refusal.Code != log.CodeNotAuthorized {
					t.Errorf("by %v: got %v", by.Role, result.Refusal)
				}
			}
		})
	}
}

func fieldsOf(r *log.Refusal) (names string) {
	for _, e := range r.Errors {
		names += " " + e.Field
	}
	return names
}
