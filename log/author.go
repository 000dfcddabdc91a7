package log

import "fmt"

// Role is what the author of a change may write, as each server decides it again
// in the log's order. The numbers stand in stored bytes.
type Role uint8

// The roles of authors.
const (
	// RoleTrusted: an operator, a server itself, or a client of a listener
	// that asks for no names. It is also what stands in changes without a role.
	RoleTrusted Role = 0
	// RoleCN: a compute node, Author.CN. It writes about itself.
	RoleCN Role = 1
	// RoleReader writes nothing.
	RoleReader Role = 2
	// RoleForeign: a program without a name that may write objects, but nothing
	// that says who may do what.
	RoleForeign Role = 3
)

var roleNames = [...]string{RoleTrusted: "trusted", RoleCN: "cn", RoleReader: "reader", RoleForeign: "foreign"}

// String returns the role's name, or role(N) for an unknown one.
func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// Author is what the server that took a change knows of who asks for it. Clients
// cannot choose it; servers that forward the change keep it. It is comparable.
type Author struct {
	Role Role
	CN   UUID // of RoleCN
}

// stampFields returns how many fields encodeStamps writes.
func (c *Change) stampFields() int {
	switch {
	case len(c.Reverts) > 0:
		return authorFields + 2
	case !c.Content.IsZero():
		return authorFields + 1
	case c.By != (Author{}):
		return authorFields
	}
	return 0
}

// encodeStamps writes the author, the content and what is reverted, as far as there are any.
func (c *Change) encodeStamps(v *encoder) {
	n := c.stampFields()
	if n > 0 {
		v.uint(uint64(c.By.Role))
		v.id(&c.By.CN)
	}
	if n > authorFields {
		v.bin(c.Content[:])
	}
	if n > authorFields+1 {
		c.Reverts.encode(v)
	}
}

func (c *Change) decodeStamps(v *decoder) {
	v.u8((*uint8)(&c.By.Role))
	v.uuid("", &c.By.CN)
	copy(c.Content[:], v.bin(len(c.Content)))
	if v.strict >= FeatureDeclared { // programs of before pass over it, whatever it is
		c.Reverts.decode(v)
	}
}
