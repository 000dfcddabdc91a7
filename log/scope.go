package log

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// ScopeType is the sort of a scope. The numbers stand in stored bytes.
type ScopeType uint8

// The sorts of scopes.
const (
	ScopeAll     ScopeType = 1 // what every CN must know, such as NIC tags
	ScopeCN      ScopeType = 2 // one compute node: its server object, VMs, NICs
	ScopeVNet    ScopeType = 3 // one VXLAN network id: its networks, NICs, and the underlay NICs of its CNs
	ScopeNetwork ScopeType = 4 // one network that is not on a vnet
)

// Scope is a part of the state that a CN is interested in or not. It is
// comparable, so it can be a map's key. Exactly one of VNet and ID is used.
type Scope struct {
	Type ScopeType
	VNet uint32
	ID   UUID
}

// CNScope returns the scope of a compute node.
func CNScope(cn UUID) Scope { return Scope{Type: ScopeCN, ID: cn} }

// VNetScope returns the scope of a vnet.
func VNetScope(vnet uint32) Scope { return Scope{Type: ScopeVNet, VNet: vnet} }

// NetworkScope returns the scope of a network that is not on a vnet.
func NetworkScope(network UUID) Scope { return Scope{Type: ScopeNetwork, ID: network} }

// AllScope returns the scope that every CN holds.
func AllScope() Scope { return Scope{Type: ScopeAll} }

// String returns all, cn:UUID, vnet:N or network:UUID.
func (s Scope) String() string {
	switch s.Type {
	case ScopeAll:
		return "all"
	case ScopeCN:
		return "cn:" + s.ID.String()
	case ScopeVNet:
		return "vnet:" + strconv.FormatUint(uint64(s.VNet), 10)
	case ScopeNetwork:
		return "network:" + s.ID.String()
	}
	return fmt.Sprintf("scope(%d)", uint8(s.Type))
}

// ParseScope accepts exactly what Scope.String prints for the known sorts.
func ParseScope(text string) (Scope, error) {
	if text == "all" {
		return AllScope(), nil
	}
	sort, rest, _ := strings.Cut(text, ":")
	switch sort {
	case "cn", "network":
		id, err := ParseUUID(rest)
		if err != nil {
			return Scope{}, fmt.Errorf("scope %q: %w", text, err)
		}
		if sort == "cn" {
			return CNScope(id), nil
		}
		return NetworkScope(id), nil
	case "vnet":
		n, err := strconv.ParseUint(rest, 10, 32)
		if err != nil || n > MaxVNet || strconv.FormatUint(n, 10) != rest {
			return Scope{}, fmt.Errorf("scope %q: a vnet is a number from 0 to %d", text, MaxVNet)
		}
		return VNetScope(uint32(n)), nil
	}
	return Scope{}, fmt.Errorf("scope %q: want all, cn:UUID, vnet:N or network:UUID", text)
}

// Compare orders scopes by type, then vnet, then id.
func (s Scope) Compare(t Scope) int {
	if s.Type != t.Type {
		return int(s.Type) - int(t.Type)
	}
	if s.VNet != t.VNet {
		if s.VNet < t.VNet {
			return -1
		}
		return 1
	}
	return s.ID.Compare(t.ID)
}

// MarshalText implements encoding.TextMarshaler.
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Scope) UnmarshalText(text []byte) (err error) {
	*s, err = ParseScope(string(text))
	return err
}

// AppendBinary appends the stored form: the type's byte, then the vnet (4
// bytes, big endian), the UUID (16 bytes), or nothing.
func (s Scope) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, byte(s.Type))
	switch s.Type {
	case ScopeVNet:
		b = binary.BigEndian.AppendUint32(b, s.VNet)
	case ScopeCN, ScopeNetwork:
		b = append(b, s.ID[:]...)
	}
	return b, nil
}

// UnmarshalBinary reads what AppendBinary wrote.
func (s *Scope) UnmarshalBinary(b []byte) error {
	if len(b) == 0 {
		return fmt.Errorf("scope of no bytes: %w", ErrCorrupt)
	}
	*s = Scope{Type: ScopeType(b[0])}
	rest := b[1:]
	switch {
	case s.Type == ScopeAll && len(rest) == 0:
	case s.Type == ScopeVNet && len(rest) == 4:
		s.VNet = binary.BigEndian.Uint32(rest)
	case (s.Type == ScopeCN || s.Type == ScopeNetwork) && len(rest) == 16:
		copy(s.ID[:], rest)
	default:
		return fmt.Errorf("scope %x: %w", b, ErrCorrupt)
	}
	return nil
}

// scopes is the part of a kind's row that says to which scope an object belongs by its
// own fields; Type is 0 if to none.
type scopes[T any] func(o *T) Scope

// scopeTable is scopes[T] of any T. An object that it is given is a *T.
type scopeTable interface{ of(o Object) Scope }

func (s scopes[T]) of(o Object) Scope { return s(any(o).(*T)) }

// onCN is the scope of what is on a compute node; of Type 0 if cn is not set.
func onCN(cn UUID) (scope Scope) {
	if !cn.IsZero() {
		scope = CNScope(cn)
	}
	return scope
}

// ScopeOf returns the scope to which an object belongs by its own fields, of Type 0 if
// to none. NICs and routers, which may belong to several scopes, and objects of
// kinds that this program does not know have none here.
func ScopeOf(o Object) Scope {
	if row := rowOf(o); row != nil && row.scope != nil {
		return row.scope.of(o)
	}
	return Scope{}
}

// HasScope reports whether the kind declares a scope, which is what ScopeOf returns.
func (k Kind) HasScope() bool { return k.row() != nil && k.row().scope != nil }
