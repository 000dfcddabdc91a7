package log

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

// fields is the list of a kind's fields: a function that shows each field of an
// object to a visitor, by its JSON name. Its order is the order of stored bytes, so
// that new fields are only ever appended.
//
// It is one function, and not a list with a function for each field: that takes
// 160 ns to encode the fields of a VM, where this takes 70 ns (BenchmarkEncodeVM).
type fields[T any] func(o *T, v visitor)

// visitor is shown each field of an object, in the order of the codec.
type visitor interface {
	str(name string, p *string)
	boolean(name string, p *bool)
	u32(name string, p *uint32)
	u64(name string, p *uint64)
	time(name string, p *Time)
	uuid(name string, p *UUID)
	mac(name string, p *MAC)
	addr(name string, p *netip.Addr)
	prefix(name string, p *netip.Prefix)
	strs(name string, p *[]string)
	uuids(name string, p *[]UUID)
	macs(name string, p *[]MAC)
	u32s(name string, p *[]uint32)
	addrs(name string, p *[]netip.Addr)
	routes(name string, p *Routes)
}

// fieldTable is fields[T] of any T. An object that it is given is a *T.
type fieldTable interface {
	visit(o Object, v visitor)
	newObject() Object
	// shallow returns a copy that shares its lists with the object.
	shallow(o Object) Object
}

func (f fields[T]) visit(o Object, v visitor) { f(any(o).(*T), v) }

func (f fields[T]) newObject() Object { return any(new(T)).(Object) }

func (f fields[T]) shallow(o Object) Object {
	c := *any(o).(*T)
	return any(&c).(Object)
}

// late are the last fields of a kind, which later feature versions brought: the fields of
// each version behind those of the one before. An object in which none is set of the last
// versions is encoded without them, as programs before these versions encode it (SAFETY D1).
type late[T any] []generation[T]

// generation are the fields that one feature version brought: count of them, which an
// object has not if unset says so.
type generation[T any] struct {
	count int
	from  uint32
	unset func(*T) bool
}

// lateTable is late[T] of any T.
type lateTable interface {
	// unwritten returns how many fields an object is encoded without, and the feature
	// version that brought the first of them; 0 if it is encoded with all.
	unwritten(o Object) (count int, from uint32)
	// after returns how many fields later feature versions than this brought.
	after(version uint32) int
	// versions are those that brought fields, the first one first; count is how many
	// fields one of them brought.
	versions() []uint32
	count(version uint32) int
	// isUnset reports whether an object has none of the fields of a version set.
	isUnset(o Object, version uint32) bool
}

func (l late[T]) unwritten(o Object) (count int, from uint32) {
	t := any(o).(*T)
	tail := o.tail()
	if len(tail.raw) > 0 {
		return 0, 0 // fields behind them keep their places
	}
	for i := len(l) - 1; i >= 0 && l[i].unset(t) && (tail.unread == nil || tail.unread[l[i].from] == nil); i-- {
		count, from = count+l[i].count, l[i].from
	}
	return count, from
}

func (l late[T]) after(version uint32) (n int) {
	for _, g := range l {
		if g.from > version {
			n += g.count
		}
	}
	return n
}

func (l late[T]) versions() []uint32 {
	all := make([]uint32, len(l))
	for i, g := range l {
		all[i] = g.from
	}
	return all
}

func (l late[T]) count(version uint32) int {
	i := slices.IndexFunc(l, func(g generation[T]) bool { return g.from == version })
	return l[i].count
}

func (l late[T]) isUnset(o Object, version uint32) bool {
	i := slices.IndexFunc(l, func(g generation[T]) bool { return g.from == version })
	return l[i].unset(any(o).(*T))
}

// takes reports whether v is shown the fields of the object at hand that a feature version
// brought.
func takes(v visitor, version uint32) bool {
	switch v := v.(type) {
	case *encoder:
		return v.takes(version)
	case *decoder:
		return v.late == nil || v.late.takes(v, version)
	case *measurer:
		return version <= v.feature
	}
	return true
}

// FieldsAfter are the names of the fields of a kind that later feature versions than this
// brought: the last of its fields.
func (k Kind) FieldsAfter(version uint32) []string {
	row := k.row()
	if row == nil || row.late == nil {
		return nil
	}
	names := fieldNames[k]
	return names[len(names)-row.late.after(version):]
}

// fieldNames are the JSON names of the fields of each kind, in the order of the codec.
var fieldNames = func() (names [len(kinds)][]string) {
	for k, row := range kinds {
		if row == nil {
			continue
		}
		var c collector
		row.fields.visit(row.fields.newObject(), &c)
		for _, s := range c.slots {
			names[k] = append(names[k], s.name)
		}
	}
	return names
}()

// slot is one field of an object: its JSON name and a pointer to it.
type slot struct {
	name string
	p    any
}

// collector is the visitor that lists the fields, or, if each is set, shows them
// to it beside those of the list.
type collector struct {
	slots []slot
	only  string // if set, the name of the one field that is listed
	each  func(a, b slot)
	next  int // of the list
}

func (c *collector) add(name string, p any) {
	if c.only != "" && name != c.only {
		return
	}
	if c.each == nil {
		c.slots = append(c.slots, slot{name, p})
		return
	}
	c.each(c.slots[c.next], slot{name, p})
	c.next++
}

func (c *collector) str(name string, p *string)          { c.add(name, p) }
func (c *collector) boolean(name string, p *bool)        { c.add(name, p) }
func (c *collector) u32(name string, p *uint32)          { c.add(name, p) }
func (c *collector) u64(name string, p *uint64)          { c.add(name, p) }
func (c *collector) time(name string, p *Time)           { c.add(name, p) }
func (c *collector) uuid(name string, p *UUID)           { c.add(name, p) }
func (c *collector) mac(name string, p *MAC)             { c.add(name, p) }
func (c *collector) addr(name string, p *netip.Addr)     { c.add(name, p) }
func (c *collector) prefix(name string, p *netip.Prefix) { c.add(name, p) }
func (c *collector) strs(name string, p *[]string)       { c.add(name, p) }
func (c *collector) uuids(name string, p *[]UUID)        { c.add(name, p) }
func (c *collector) macs(name string, p *[]MAC)          { c.add(name, p) }
func (c *collector) u32s(name string, p *[]uint32)       { c.add(name, p) }
func (c *collector) addrs(name string, p *[]netip.Addr)  { c.add(name, p) }
func (c *collector) routes(name string, p *Routes)       { c.add(name, p) }

// slots lists the fields of an object; none of one of a kind that is not known.
func slots(o Object) []slot {
	c := collector{slots: make([]slot, 0, 24)}
	visit(o, &c)
	return c.slots
}

// visit shows the fields of an object to v; none of a kind that is not known.
func visit(o Object, v visitor) {
	if row := rowOf(o); row != nil {
		row.fields.visit(o, v)
	}
}

// pairwise calls each with the fields of a and b, side by side; they are of one kind.
func pairwise(a, b Object, each func(a, b slot)) {
	c := collector{slots: make([]slot, 0, len(fieldNames[min(int(a.Kind()), len(fieldNames)-1)]))}
	visit(a, &c)
	c.each = each
	visit(b, &c)
}

// same reports whether two fields of one name have equal plain forms, without
// making them.
func (s slot) same(t slot) bool {
	switch p := s.p.(type) {
	case *string:
		return *p == *t.p.(*string)
	case *bool:
		return *p == *t.p.(*bool)
	case *uint32:
		return *p == *t.p.(*uint32)
	case *uint64:
		return *p == *t.p.(*uint64)
	case *Time:
		return *p == *t.p.(*Time)
	case *UUID:
		return *p == *t.p.(*UUID)
	case *MAC:
		return *p == *t.p.(*MAC)
	case *netip.Addr:
		return *p == *t.p.(*netip.Addr)
	case *netip.Prefix:
		return *p == *t.p.(*netip.Prefix) || !p.IsValid() && !t.p.(*netip.Prefix).IsValid()
	case *[]string:
		return slices.Equal(*p, *t.p.(*[]string))
	case *[]UUID:
		return slices.Equal(*p, *t.p.(*[]UUID))
	case *[]MAC:
		return slices.Equal(*p, *t.p.(*[]MAC))
	case *[]uint32:
		return slices.Equal(*p, *t.p.(*[]uint32))
	case *[]netip.Addr:
		return slices.Equal(*p, *t.p.(*[]netip.Addr))
	}
	return equalValues(s.value(), t.value())
}

// FieldChange is one field that an event changed: its JSON name and the value
// that it had before.
type FieldChange struct {
	Path string `json:"path"`
	Old  Value  `json:"old"`
}

// Diff returns what changed from before to after, which must be of one kind:
// the fields in codec order, each with its old value. Nil if they are equal.
func Diff(before, after Object) []FieldChange {
	var changed []FieldChange
	pairwise(before, after, func(was, is slot) {
		if !was.same(is) {
			changed = append(changed, FieldChange{was.name, was.value()})
		}
	})
	return changed
}

// Revert undoes changed on a clone of o: the object as it was before the event.
// It returns an error if a path or an old value does not fit o's kind, as an
// event of a newer program may have them.
func Revert(o Object, changed []FieldChange) (Object, error) {
	c := Clone(o)
	fields := slots(c)
	for _, change := range changed {
		i := slices.IndexFunc(fields, func(s slot) bool { return s.name == change.Path })
		if i < 0 {
			return nil, fmt.Errorf("%s %s: no field %q to revert", o.Kind(), o.ID(), change.Path)
		}
		if err := fields[i].setValue(change.Old); err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.Kind(), o.ID(), err)
		}
	}
	return c, nil
}

// fieldOf returns a pointer to o's field by its JSON name; nil if it has none.
func fieldOf(o Object, name string) (slot, bool) {
	var room [1]slot
	c := collector{slots: room[:0], only: name}
	if name != "" {
		visit(o, &c)
	}
	if len(c.slots) == 0 {
		return slot{}, false
	}
	return c.slots[0], true
}

// Field returns the plain value of o's field by its JSON name, and whether o
// has such a field.
func Field(o Object, name string) (Value, bool) {
	s, ok := fieldOf(o, name)
	if !ok {
		return nil, false
	}
	return s.value(), true
}

// FieldHas reports whether o's field of that JSON name is what the text says, as a
// query has it: 36 characters of a UUID, true, a number. Of a list one element must
// be. A field that there is not has nothing.
func FieldHas(o Object, name, text string) bool {
	s, ok := fieldOf(o, name)
	if !ok {
		return false
	}
	switch p := s.p.(type) {
	case *string:
		return *p == text
	case *bool:
		return strconv.FormatBool(*p) == text
	case *uint32:
		return strconv.FormatUint(uint64(*p), 10) == text
	case *uint64:
		return strconv.FormatUint(*p, 10) == text
	case *UUID:
		return p.Is(text)
	case *[]string:
		return slices.Contains(*p, text)
	case *[]UUID:
		return slices.ContainsFunc(*p, func(u UUID) bool { return u.Is(text) })
	case fmt.Stringer:
		return p.String() == text
	}
	list, _ := s.value().([]string)
	return slices.Contains(list, text)
}

// FieldNames lists the JSON names of kind's fields in codec order.
func FieldNames(kind Kind) []string {
	if int(kind) >= len(fieldNames) {
		return nil
	}
	return slices.Clone(fieldNames[kind])
}

// TimeFields lists the JSON names of all fields of any kind that are times, sorted.
func TimeFields() (names []string) {
	for _, row := range kinds {
		if row == nil {
			continue
		}
		for _, s := range slots(row.fields.newObject()) {
			if _, is := s.p.(*Time); is {
				names = append(names, s.name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Assign copies the named fields of from to to, which are of one kind, and
// returns the first name that the kind does not have, or "". The others are
// copied even so.
func Assign(to, from Object, names []string) (unknown string) {
	found := 0
	pairwise(to, from, func(to, from slot) {
		if slices.Contains(names, to.name) {
			to.copyFrom(from)
			found++
		}
	})
	if found == len(names) {
		return ""
	}
	dst := slots(to)
	for _, name := range names {
		if !slices.ContainsFunc(dst, func(s slot) bool { return s.name == name }) {
			return name
		}
	}
	return "" // one was named twice
}

// Equal reports whether two objects have the same kind and the same known fields.
func Equal(a, b Object) bool {
	if a.Kind() != b.Kind() {
		return false
	}
	_, x := a.(*Unknown)
	_, y := b.(*Unknown)
	if x || y { // its id is no field
		return x && y && a.ID() == b.ID()
	}
	equal := true
	pairwise(a, b, func(a, b slot) { equal = equal && a.same(b) })
	return equal
}

// UUIDField returns o's own field of that JSON name, or nil if it is not a UUID.
func UUIDField(o Object, name string) *UUID {
	s, _ := fieldOf(o, name)
	uuid, _ := s.p.(*UUID)
	return uuid
}

// FieldTexts returns the values of o's field by its JSON name, in text: the elements of
// a list, or the one value. Nil if it is not set or there is no such field.
func FieldTexts(o Object, name string) []string {
	switch v, _ := Field(o, name); v := v.(type) {
	case nil:
		return nil
	case []string:
		return v
	case string:
		return []string{v}
	default:
		return []string{fmt.Sprint(v)}
	}
}
