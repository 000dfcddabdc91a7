package matrix

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"rutter/log"
)

// Role is what an identity is to the cluster.
type Role uint8

// The roles. None may do nothing that has a row.
const (
	None     Role = iota
	Local         // a client of a loopback listener without TLS; may do what an operator may
	Server        // a server of the cluster
	CN            // a compute node, its UUID in Identity.UUID
	Operator      // a person or program that may write
	Reader        // a person or program that may only read
	Foreign       // a program without TLS, admitted by its source address
	Join          // a client with a token and without a certificate
	Expired       // a compute node whose certificate has ended, which may only renew it; its UUID in Identity.UUID
)

var roleNames = [...]string{None: "none", Local: "local", Server: "server", CN: "cn", Operator: "operator", Reader: "reader", Foreign: "foreign", Join: "join", Expired: "expired"}

// Roles returns the roles that are columns of the matrix, in its order.
func Roles() []Role { return []Role{Local, Server, CN, Operator, Reader, Foreign, Join, Expired} }

// String returns the role's name, or role(N) for an unknown one.
func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// ParseRole accepts exactly what Role.String prints for known roles, except none.
func ParseRole(text string) (Role, error) {
	if at := slices.Index(roleNames[:], text); at > 0 {
		return Role(at), nil
	}
	return None, fmt.Errorf("role %q: want one of server, cn, operator, reader", text)
}

// Identity is who makes a request. The zero value has the role None. It is immutable.
type Identity struct {
	Role Role
	// Name of a server, an operator or a reader. For a foreign and a local client it is
	// the address.
	Name string
	UUID log.UUID // of a CN
	// Serial of the certificate, in hexadecimal; "" without one.
	Serial string
	// KeyID of the certificate's key, and of the authority that signed it, where a
	// connection was made with it.
	KeyID, Issuer string
	// Write lets a Foreign identity write. Other roles do not need it.
	Write bool
	// Programs lets a Foreign identity choose what runs on compute nodes. Other roles
	// that may write VMs do not need it.
	Programs bool
	// Owners, if not empty, are the tenants to whose objects (owner_uuid) a Reader is
	// limited.
	Owners []log.UUID
}

// Scheme of the URI in a certificate that has its identity.
const Scheme = "rutter"

// ErrIdentity is wrapped by every error of reading an identity.
var ErrIdentity = errors.New("access: no identity of ours")

// MaxName bounds the name of an identity, in bytes, so that it fits into a change's
// actor after its role.
const MaxName = 64

// URI returns the identity as a subject alternative name of a certificate:
// rutter://ROLE/NAME, where NAME is a CN's UUID or the name. Only Server, CN, Operator
// and Reader have one.
func (i Identity) URI() (*url.URL, error) {
	name := i.Name
	switch i.Role {
	case CN:
		if i.UUID.IsZero() {
			return nil, fmt.Errorf("%w: a cn needs its UUID", ErrIdentity)
		}
		name = i.UUID.String()
	case Server, Operator, Reader:
	default:
		return nil, fmt.Errorf("%w: a certificate cannot say %s", ErrIdentity, i.Role)
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	return &url.URL{Scheme: Scheme, Host: i.Role.String(), Path: "/" + name}, nil
}

// ParseURI reads what URI returned.
func ParseURI(u *url.URL) (Identity, error) {
	if u.Scheme != Scheme || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return Identity{}, fmt.Errorf("%w: %q is not %s://ROLE/NAME", ErrIdentity, u, Scheme)
	}
	name, ok := strings.CutPrefix(u.Path, "/")
	if !ok {
		return Identity{}, fmt.Errorf("%w: %q has no name", ErrIdentity, u)
	}
	if err := checkName(name); err != nil {
		return Identity{}, err
	}
	switch role := u.Host; role {
	case "cn":
		id, err := log.ParseUUID(name)
		if err != nil {
			return Identity{}, fmt.Errorf("%w: %w", ErrIdentity, err)
		}
		return Identity{Role: CN, UUID: id}, nil
	case "server":
		return Identity{Role: Server, Name: name}, nil
	case "operator":
		return Identity{Role: Operator, Name: name}, nil
	case "reader":
		return Identity{Role: Reader, Name: name}, nil
	}
	return Identity{}, fmt.Errorf("%w: role %q is none of server, cn, operator, reader", ErrIdentity, u.Host)
}

// FromURIs returns the one identity among the URIs of a certificate. None, or more than
// one of this scheme, is refused, because it is ambiguous.
func FromURIs(uris []*url.URL, serial string) (Identity, error) {
	var found []*url.URL
	for _, u := range uris {
		if u.Scheme == Scheme {
			found = append(found, u)
		}
	}
	if len(found) != 1 {
		return Identity{}, fmt.Errorf("%w: a certificate must have exactly one URI %s://ROLE/NAME, this one has %d", ErrIdentity, Scheme, len(found))
	}
	id, err := ParseURI(found[0])
	id.Serial = serial
	return id, err
}

// checkName refuses a name that is not one plain word in a log line or a path.
func checkName(name string) error {
	if name == "" || len(name) > MaxName {
		return fmt.Errorf("%w: a name has 1 to %d letters, this one %d", ErrIdentity, MaxName, len(name))
	}
	for _, c := range []byte(name) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.@", c) >= 0 {
			continue
		}
		return fmt.Errorf("%w: name %q: letters, digits and -_.@ only", ErrIdentity, name)
	}
	return nil
}

// Actor is the identity's form in events and in logs: role:NAME, or cn:UUID. A local
// one is anonymous@ADDRESS, because it has no certificate.
func (i Identity) Actor() string {
	switch i.Role {
	case CN:
		return "cn:" + i.UUID.String()
	case Local:
		return "anonymous@" + i.Name
	case Expired:
		return "expired:cn:" + i.UUID.String()
	case None:
		return "nobody"
	}
	return i.Role.String() + ":" + i.Name
}

// Key names the identity where a limit is counted per identity: two connections of one
// identity share it. Identities without a certificate have their address.
func (i Identity) Key() string { return i.Actor() }

type contextKey struct{}

// With returns a context that carries the identity of a connection.
func With(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, id)
}

// From returns the identity that With put into the context.
func From(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(contextKey{}).(Identity)
	return id, ok
}

// Author returns the author by which the servers decide a change of this identity. An
// identity that may not write at all is a reader.
func (i Identity) Author() log.Author {
	switch i.Role {
	case Local, Server, Operator:
		return log.Author{}
	case CN:
		return log.Author{Role: log.RoleCN, CN: i.UUID}
	case Foreign:
		if i.Write {
			return log.Author{Role: log.RoleForeign}
		}
	}
	return log.Author{Role: log.RoleReader}
}
