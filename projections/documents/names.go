package documents

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// candidate is an object that a name may mean.
type candidate struct {
	kind  log.Kind
	id    string
	owner string // the one owner; "" if there is none, or several
}

// directory finds objects by their names: those of a state, and those that documents
// declare, whose names count where both have one.
type directory struct {
	state    *projections.State
	byName   map[log.Kind]map[string][]candidate
	declared map[log.Kind]map[string]candidate // by id
	named    map[log.Kind]map[string]string    // the names of declared, by id
}

func newDirectory(state *projections.State) *directory {
	return &directory{
		state: state, byName: make(map[log.Kind]map[string][]candidate),
		declared: make(map[log.Kind]map[string]candidate), named: make(map[log.Kind]map[string]string),
	}
}

// declare notes an object of a document.
func (d *directory) declare(kind log.Kind, name string, c candidate) {
	if d.declared[kind] == nil {
		d.declared[kind], d.named[kind] = make(map[string]candidate), make(map[string]string)
	}
	d.declared[kind][c.id], d.named[kind][c.id] = c, name
	delete(d.byName, kind)
}

// inState are the objects of the state that have a name, sorted by id.
func (d *directory) inState(kind log.Kind, name string) (all []candidate) {
	for _, c := range d.names(kind)[name] {
		if _, ok := d.state.Get(kind, c.id); ok {
			all = append(all, c)
		}
	}
	return all
}

// names are the candidates of a kind by name.
func (d *directory) names(kind log.Kind) map[string][]candidate {
	if names := d.byName[kind]; names != nil {
		return names
	}
	names := make(map[string][]candidate)
	for r := range d.state.List(kind) {
		id := r.Object.ID()
		if _, is := d.declared[kind][id]; !is {
			name := nameOf(r.Object)
			names[name] = append(names[name], candidate{kind, id, ownerOf(r.Object)})
		}
	}
	for id, c := range d.declared[kind] {
		name := d.named[kind][id]
		names[name] = append(names[name], c)
	}
	for _, list := range names {
		slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
	}
	d.byName[kind] = names
	return names
}

// find returns the objects of any of the kinds that a text means: NAME, or OWNER/NAME.
func (d *directory) find(text string, of ...log.Kind) (found []candidate) {
	owner, name, qualified := strings.Cut(text, "/")
	if _, err := log.ParseUUID(owner); err != nil {
		qualified = false
	}
	for _, kind := range of {
		if qualified {
			for _, c := range d.names(kind)[name] {
				if c.owner == strings.ToLower(owner) {
					found = append(found, c)
				}
			}
		} else if text != "" {
			found = append(found, d.names(kind)[text]...)
		}
	}
	return found
}

// reference returns how documents write the id of an object of any of the kinds: its name
// if only it has that, else OWNER/NAME, else the id.
func (d *directory) reference(id string, of ...log.Kind) string {
	for _, kind := range of {
		r, ok := d.state.Get(kind, id)
		if !ok {
			continue
		}
		name := nameOf(r.Object)
		for _, text := range []string{name, ownerOf(r.Object) + "/" + name} {
			if name == "" || strings.Contains(name, "/") || isUUID(text) {
				break
			}
			if found := d.find(text, of...); len(found) == 1 && found[0].id == id {
				return text
			}
		}
		break
	}
	return id
}

func isUUID(text string) bool {
	_, err := log.ParseUUID(text)
	return err == nil
}

// nameOf is the name of an object; "" if it has none.
func nameOf(o log.Object) string {
	field := NameField(o.Kind())
	if field == "" {
		return ""
	}
	v, _ := log.Field(o, field)
	name, _ := v.(string)
	return name
}

// ownerOf is the owner of an object; "" if it has none, or several.
func ownerOf(o log.Object) string {
	owners := log.FieldTexts(o, "owner_uuid")
	if o.Kind() == log.KindNetwork || o.Kind() == log.KindNetworkPool {
		owners = log.FieldTexts(o, "owner_uuids")
	}
	if len(owners) != 1 {
		return ""
	}
	return owners[0]
}

// describe is an object as messages have it, as in network "blue".
func describe(kind log.Kind, name, id string) string {
	noun := kind.Describe().Noun
	switch {
	case name != "":
		return fmt.Sprintf("%s %q", noun, name)
	case id != "":
		return noun + " " + id
	}
	return noun
}

// derivedUUID is the id of a new object whose document has none: the same in each plan of
// the document, and in each cluster that the document is applied to.
func derivedUUID(kind log.Kind, owner, name string) (u log.UUID) {
	sum := sha256.Sum256([]byte("rutter document\x00" + kind.String() + "\x00" + owner + "\x00" + name))
	copy(u[:], sum[:])
	u[6] = u[6]&0x0f | 0x80 // version 8, RFC 9562: whose content is the program's own
	u[8] = u[8]&0x3f | 0x80
	return u
}

// derivedMAC is the MAC of a new NIC whose document has none, as derivedUUID. try counts
// those that are taken.
func derivedMAC(belongsTo, network, ip string, try int) (m log.MAC) {
	sum := sha256.Sum256(fmt.Appendf(nil, "rutter document\x00nic\x00%s\x00%s\x00%s\x00%d", belongsTo, network, ip, try))
	text := "90:b8:d0:" + hex.EncodeToString(sum[:1]) + ":" + hex.EncodeToString(sum[1:2]) + ":" + hex.EncodeToString(sum[2:3])
	m, _ = log.ParseMAC(text)
	return m
}
