package vmdoc

import (
	"slices"
	"strconv"
	"strings"
)

// Action is the kind of a field's change. The names are vminfod's.
type Action string

// The actions.
const (
	Added   Action = "added"
	Changed Action = "changed"
	Removed Action = "removed"
)

// Step is one part of a path into a VM: a field, or some element of an array.
type Step struct {
	Name string
	Any  bool // an element of an array; null in JSON
}

// Change is one difference between two states of a VM (spec/vminfod.md, 5.2).
type Change struct {
	Path   []Step
	Action Action
	Old    *Value // nil: none
	New    *Value
	Ident  *Value // which element of a mapped array was changed in place
}

// Idents has the arrays at the root of a VM whose objects are identified by a field, so
// that they can change in place: the map of vminfod.
var Idents = map[string]string{"disks": "path", "nics": "mac"}

// Diff lists the differences of two objects, by the rules of vminfod's own diff
// (spec/vminfod.md, 5.3). Where the original throws (null against an object or an
// array; a mapped array that holds something other than objects), the field is listed
// as changed. idents is Idents, except in tests.
func Diff(from, to Value, idents map[string]string) []Change {
	if !compound(from) || !compound(to) {
		if from.same(to) {
			return nil
		}
		return []Change{{Action: Changed, Old: &from, New: &to}}
	}
	d := differ{idents: idents}
	d.pair(nil, from, to)
	return d.changes
}

// compound reports whether v has parts.
func compound(v Value) bool { return v.kind >= kindArray }

type differ struct {
	idents  map[string]string
	ident   *Value // set within a mapped element
	changes []Change
}

func (d *differ) add(path []Step, action Action, from, to *Value) {
	d.changes = append(d.changes, Change{Path: slices.Clone(path), Action: action, Old: from, New: to, Ident: d.ident})
}

// pair compares two compound values.
func (d *differ) pair(path []Step, from, to Value) {
	if from.kind == kindArray && to.kind == kindArray {
		d.arrays(path, from, to)
	} else {
		d.objects(path, from, to)
	}
}

// fields are the own keys of a compound value as Object.keys gives them.
func (v Value) fields() []string {
	if v.kind == kindObject {
		return v.keys
	}
	keys := make([]string, len(v.items))
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	return keys
}

// finder returns a search in the keys that is also fast for many keys.
func finder(keys []string) func(string) int {
	if len(keys) < manyKeys {
		return func(key string) int { return slices.Index(keys, key) }
	}
	at := positions(keys)
	return func(key string) int {
		if i, ok := at[key]; ok {
			return i
		}
		return -1
	}
}

func (d *differ) objects(path []Step, from, to Value) {
	oldKeys, newKeys := from.fields(), to.fields()
	inOld, inNew := finder(oldKeys), finder(newKeys)
	for i, key := range oldKeys {
		path, a := append(path, Step{Name: key}), from.items[i]
		j := inNew(key)
		if j < 0 {
			d.add(path, Removed, &a, nil)
			continue
		}
		switch b := to.items[j]; {
		case a.same(b):
		case !compound(a) || !compound(b):
			d.add(path, Changed, &a, &b)
		default:
			d.pair(path, a, b)
		}
	}
	for j, key := range newKeys {
		if inOld(key) < 0 {
			d.add(append(path, Step{Name: key}), Added, nil, &to.items[j])
		}
	}
}

// arrays compares as sets of JSON texts. Elements of a mapped array with the same ident
// are compared as objects.
func (d *differ) arrays(path []Step, from, to Value) {
	removed, added := missing(from.items, to.items), missing(to.items, from.items)
	var pairs [][2]Value
	key := ""
	if len(path) == 1 && d.ident == nil {
		key = d.idents[path[0].Name]
	}
	if key != "" {
		var ok bool
		if removed, added, pairs, ok = matchIdents(removed, added, key); !ok {
			d.add(path, Changed, &from, &to)
			return
		}
	}
	path = append(path, Step{Any: true})
	for i := range removed {
		d.add(path, Removed, &removed[i], nil)
	}
	for _, pair := range pairs {
		inner := differ{}
		if ident, ok := pair[0].Get(key); ok {
			inner.ident = &ident
		}
		inner.objects(path, pair[0], pair[1])
		d.changes = append(d.changes, inner.changes...)
	}
	for i := range added {
		d.add(path, Added, nil, &added[i])
	}
}

// missing returns the elements of a whose text is not among those of b.
func missing(a, b []Value) []Value {
	texts := make(map[string]bool, len(b))
	for _, v := range b {
		texts[string(v.AppendJSON(nil))] = true
	}
	var out []Value
	for _, v := range a {
		if !texts[string(v.AppendJSON(nil))] {
			out = append(out, v)
		}
	}
	return out
}

// matchIdents pairs elements with the same ident, in order. It is false where the
// original throws.
func matchIdents(removed, added []Value, key string) (gone, fresh []Value, pairs [][2]Value, ok bool) {
	fresh = added
	for _, a := range removed {
		if !compound(a) {
			return nil, nil, nil, false
		}
		i := slices.IndexFunc(fresh, func(b Value) bool { return b.IsNull() || sameField(a, b, key) })
		if i < 0 {
			gone = append(gone, a)
			continue
		}
		if !compound(fresh[i]) {
			return nil, nil, nil, false
		}
		pairs = append(pairs, [2]Value{a, fresh[i]})
		fresh = slices.Delete(slices.Clone(fresh), i, i+1)
	}
	return gone, fresh, pairs, true
}

// sameField is a[key] === b[key], where a field that is not there is undefined.
func sameField(a, b Value, key string) bool {
	x, isX := a.Get(key)
	y, isY := b.Get(key)
	return isX == isY && (!isX || x.same(y))
}

// PrettyPath is the path for display: nics.*.ip, tags[a.b].
func (c Change) PrettyPath() string {
	var b strings.Builder
	for _, step := range c.Path {
		name := step.Name
		if step.Any {
			name = "*"
		}
		if strings.ContainsAny(name, ".[]") {
			b.WriteString("[" + bracketEscaper.Replace(name) + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(name)
	}
	return b.String()
}

var bracketEscaper = strings.NewReplacer("[", `\[`, "]", `\]`)

// AppendJSON appends c as vminfod prints it.
func (c Change) AppendJSON(b []byte) []byte {
	b = AppendString(append(b, `{"prettyPath":`...), c.PrettyPath())
	b = append(b, `,"path":[`...)
	for i, step := range c.Path {
		if i > 0 {
			b = append(b, ',')
		}
		if step.Any {
			b = append(b, "null"...)
		} else {
			b = AppendString(b, step.Name)
		}
	}
	b = AppendString(append(b, `],"action":`...), string(c.Action))
	for _, field := range []struct {
		name  string
		value *Value
	}{{"oldValue", c.Old}, {"newValue", c.New}, {"ident", c.Ident}} {
		if field.value != nil {
			b = append(append(append(b, `,"`...), field.name...), `":`...)
			b = field.value.AppendJSON(b)
		}
	}
	return append(b, '}')
}

// MarshalJSON implements json.Marshaler.
func (c Change) MarshalJSON() ([]byte, error) { return c.AppendJSON(nil), nil }

// ChangeOf reads a change from its JSON form; what is missing stays empty.
func ChangeOf(v Value) Change {
	c := Change{Action: Action(v.Text("action"))}
	path, _ := v.Get("path")
	for _, step := range path.Items() {
		name, named := step.String()
		c.Path = append(c.Path, Step{Name: name, Any: !named})
	}
	for name, to := range map[string]**Value{"oldValue": &c.Old, "newValue": &c.New, "ident": &c.Ident} {
		if field, ok := v.Get(name); ok {
			*to = &field
		}
	}
	return c
}

// AppendChanges appends changes as a JSON array.
func AppendChanges(b []byte, changes []Change) []byte {
	b = append(b, '[')
	for i, c := range changes {
		if i > 0 {
			b = append(b, ',')
		}
		b = c.AppendJSON(b)
	}
	return append(b, ']')
}
