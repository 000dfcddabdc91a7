package matrix

import (
	"slices"
	"strings"

	"rutter/log"
)

// WhoMay says in words which roles a row allows. Local ones may whatever operators may.
func (row *Row) WhoMay() string {
	var all, own []string
	for _, role := range slices.DeleteFunc(Roles(), func(r Role) bool { return r == Local }) {
		switch row.For(Identity{Role: role, UUID: log.UUID{1}}) {
		case Allow:
			all = append(all, role.String())
		case Own:
			own = append(own, role.String())
		default:
			if role == Foreign && row.For(Identity{Role: role, Write: true}) == Allow {
				all = append(all, role.String()+" that may write")
			}
		}
	}
	if row.For(Identity{Role: Reader, Owners: []log.UUID{{1}}}) == Own {
		own = append(own, "tenants' readers")
	}
	text := strings.Join(all, ", ")
	if len(all) == len(Roles())-2 { // without local and expired, which may only renew
		text = "everybody"
	}
	if own == nil {
		return text
	}
	if text != "" {
		text += "; "
	}
	return text + "of its own: " + strings.Join(own, ", ")
}
