package query

import (
	"net/netip"
	"slices"

	"rutter/log"
)

// Verdict is the result of matching an entry.
type Verdict uint8

// The verdicts.
const (
	Miss Verdict = iota // the entry is not selected
	Hit
	// Past: neither this entry nor any behind it is selected, because the log's time
	// goes back only where an operator set it.
	Past
)

// A Matcher matches entries with a filter. It reads encoded events in place and
// allocates nothing. It must not be used concurrently.
type Matcher struct {
	f      Filter
	scopes []scopeGroup
	fields []fieldGroup
	view   log.EventView
}

// scopeGroup is a list of scopes in their stored form. An event must have one of them.
type scopeGroup []string

// fieldGroup is a list of values. A field of the object must have one of them, before
// or after the event.
type fieldGroup struct {
	fields map[log.Kind]place
	values []value
}

// place is the index of a field in its object, and its name.
type place struct {
	index int
	name  string
}

// value is a value of a field: as it is stored in an object, and as it is stored in the
// old values of an event.
type value struct{ stored, text string }

// The fields that filters look at, by kind. A filter by a field selects no object of a
// kind without it.
var (
	ownerFields   = places(map[log.Kind]string{log.KindNIC: "owner_uuid", log.KindVM: "owner_uuid", log.KindNetwork: "owner_uuids"})
	networkFields = places(map[log.Kind]string{log.KindNetwork: "uuid", log.KindNIC: "network_uuid"})
	addressFields = places(map[log.Kind]string{log.KindNIC: "ip", log.KindIP: "ip"})
)

func places(names map[log.Kind]string) map[log.Kind]place {
	out := make(map[log.Kind]place, len(names))
	for kind, name := range names {
		out[kind] = place{slices.Index(log.FieldNames(kind), name), name}
	}
	return out
}

// Matcher returns a matcher of f, which must not be changed afterwards.
func (f *Filter) Matcher() *Matcher {
	m := &Matcher{f: *f}
	m.scope(f.VNets, nil)
	m.scope(nil, f.CNs)
	m.uuidField(ownerFields, f.Owners)
	m.uuidField(networkFields, f.Networks)
	m.addressField(f.Addresses)
	return m
}

// Within restricts the matcher to objects that have, or had before the event, one of
// the owners. It is for tenants' readers. With no owners the matcher selects nothing.
func (m *Matcher) Within(owners []log.UUID) *Matcher {
	if owners == nil {
		owners = []log.UUID{}
	}
	m.uuidField(ownerFields, owners)
	return m
}

func (m *Matcher) scope(vnets []uint32, cns []log.UUID) {
	var scopes []log.Scope
	for _, vnet := range vnets {
		scopes = append(scopes, log.VNetScope(vnet))
	}
	for _, cn := range cns {
		scopes = append(scopes, log.CNScope(cn))
	}
	var group scopeGroup
	for _, s := range scopes {
		stored, _ := s.AppendBinary(nil) // never fails
		group = append(group, string(stored))
	}
	if group != nil {
		m.scopes = append(m.scopes, group)
	}
}

func (m *Matcher) uuidField(fields map[log.Kind]place, ids []log.UUID) {
	group := fieldGroup{fields: fields}
	for _, id := range ids {
		group.values = append(group.values, value{string(id[:]), id.String()})
	}
	if ids != nil {
		m.fields = append(m.fields, group)
	}
}

func (m *Matcher) addressField(addresses []netip.Addr) {
	group := fieldGroup{fields: addressFields}
	for _, a := range addresses {
		group.values = append(group.values, value{string(a.AsSlice()), a.String()})
	}
	if addresses != nil {
		m.fields = append(m.fields, group)
	}
}

// Match matches an entry, given by its seq and its encoded event. Errors:
// log.ErrCorrupt and log.ErrFormat, for the parts of the event that it reads.
func (m *Matcher) Match(seq log.Seq, event []byte) (Verdict, error) {
	f, v := &m.f, &m.view
	if f.UntilSeq > 0 && seq > f.UntilSeq {
		return Past, nil
	}
	if err := v.Read(event); err != nil {
		return Miss, err
	}
	switch {
	case f.Until != 0 && v.Time > f.Until && seq > f.TimeSet:
		return Past, nil
	case f.Until != 0 && v.Time > f.Until:
		return Miss, nil
	case v.Time < f.Since,
		f.Kinds != nil && !slices.Contains(f.Kinds, v.Kind),
		f.Actions != nil && !slices.Contains(f.Actions, v.Action),
		f.Objects != nil && !containsText(f.Objects, v.ID),
		f.Actors != nil && !containsText(f.Actors, v.Actor):
		return Miss, nil
	}
	return m.matchBody()
}

// matchBody matches the part of the event behind its head.
func (m *Matcher) matchBody() (Verdict, error) {
	for _, group := range m.scopes {
		if ok, err := m.hasScope(group); !ok || err != nil {
			return Miss, err
		}
	}
	if m.f.Paths != nil {
		if ok, err := m.changed(); !ok || err != nil {
			return Miss, err
		}
	}
	for i := range m.fields {
		if ok, err := m.hasField(&m.fields[i]); !ok || err != nil {
			return Miss, err
		}
	}
	return Hit, nil
}

func (m *Matcher) hasScope(group scopeGroup) (has bool, err error) {
	err = m.view.EachScope(func(scope []byte) bool {
		has = containsText(group, scope)
		return !has
	})
	return has, err
}

func (m *Matcher) changed() (bool, error) {
	for _, path := range m.f.Paths {
		if changed, _, err := m.view.Old(path, ""); changed || err != nil {
			return changed, err
		}
	}
	return false, nil
}

func (m *Matcher) hasField(group *fieldGroup) (bool, error) {
	at, ok := group.fields[m.view.Kind]
	if !ok {
		return false, nil
	}
	for i := range group.values {
		want := &group.values[i]
		if has, err := m.view.FieldHas(at.index, want.stored); has || err != nil {
			return has, err
		}
		if _, was, err := m.view.Old(at.name, want.text); was || err != nil {
			return was, err
		}
	}
	return false, nil
}

// containsText is slices.Contains without a copy of b.
func containsText(list []string, b []byte) bool {
	for _, s := range list {
		if s == string(b) {
			return true
		}
	}
	return false
}
