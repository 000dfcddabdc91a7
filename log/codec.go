package log

import (
	"bytes"
	"fmt"
	"net/netip"
)

// encoder is the visitor that writes fields, to the end of b. The first error sticks.
type encoder struct {
	packer
	err error
	// body is where the object stands in b, once one was written.
	body struct{ from, to int }
	// before: the object at hand is written without the fields that this feature version
	// or a later one brought; 0: with all.
	before uint32
	// unread are the late fields of the object at hand that are written as they came.
	unread map[uint32][][]byte
	// after, if not 0: afterAt is where the fields begin that this feature version or a
	// later one brought.
	after   uint32
	afterAt int
}

func (v *encoder) keep(err error) {
	if v.err == nil {
		v.err = err
	}
}

func (v *encoder) str(_ string, p *string)      { v.text(*p) }
func (v *encoder) boolean(_ string, p *bool)    { v.bool(*p) }
func (v *encoder) u32(_ string, p *uint32)      { v.uint(uint64(*p)) }
func (v *encoder) u64(_ string, p *uint64)      { v.uint(*p) }
func (v *encoder) time(_ string, p *Time)       { v.int(int64(*p)) }
func (v *encoder) addr(_ string, p *netip.Addr) { v.ip(*p) }
func (v *encoder) routes(_ string, p *Routes)   { v.routeList(*p) }
func (v *encoder) uuid(_ string, p *UUID)       { v.id(p) }

func (v *encoder) id(u *UUID) {
	if *u == (UUID{}) {
		v.bin(nil)
		return
	}
	v.b = append(v.b, codeBin8, byte(len(u))) // as bin writes it, without the call: most fields are UUIDs
	v.b = append(v.b, u[:]...)
}

func (v *encoder) mac(_ string, p *MAC) {
	if p.IsZero() {
		v.bin(nil)
		return
	}
	v.bin(p[:])
}

func (v *encoder) ip(a netip.Addr) {
	switch {
	case !a.IsValid():
		v.bin(nil)
	case a.Is4():
		b := a.As4()
		v.bin(b[:])
	default:
		b := a.As16()
		v.bin(b[:])
	}
}

func (v *encoder) prefix(_ string, p *netip.Prefix) {
	if !p.IsValid() {
		v.bin(nil)
		return
	}
	v.bin(append(p.Addr().AsSlice(), byte(p.Bits())))
}

func (v *encoder) strs(_ string, p *[]string) {
	v.array(len(*p))
	for _, s := range *p {
		v.text(s)
	}
}

func (v *encoder) uuids(_ string, p *[]UUID) {
	v.array(len(*p))
	for _, u := range *p {
		v.id(&u)
	}
}

func (v *encoder) macs(_ string, p *[]MAC) {
	v.array(len(*p))
	for _, m := range *p {
		v.mac("", &m)
	}
}

func (v *encoder) u32s(_ string, p *[]uint32) {
	v.array(len(*p))
	for _, n := range *p {
		v.uint(uint64(n))
	}
}

func (v *encoder) addrs(_ string, p *[]netip.Addr) {
	v.array(len(*p))
	for _, a := range *p {
		v.ip(a)
	}
}

func (v *encoder) routeList(r Routes) {
	v.array(2 * len(r))
	for _, route := range r {
		v.text(route.Dst)
		v.text(route.Gateway)
	}
}

func (v *encoder) object(o Object) {
	extra := o.tail().raw
	v.body.from = len(v.b)
	if row := rowOf(o); row != nil {
		omitted := 0
		v.before, v.unread = 0, nil
		if row.late != nil {
			omitted = v.chooseLate(o, row)
		}
		v.array(len(fieldNames[o.Kind()]) - omitted + len(extra))
		row.fields.visit(o, v)
	} else {
		v.array(len(extra))
	}
	v.extras(extra)
	v.body.to = len(v.b)
}

// extras writes elements that are already encoded.
func (v *encoder) extras(raw [][]byte) {
	for _, b := range raw {
		v.b = append(v.b, b...)
	}
}

// value writes a plain value (see Value). Maps are written by sorted key.
func (v *encoder) value(value Value) {
	switch x := value.(type) {
	case nil:
		v.null()
	case bool:
		v.bool(x)
	case uint64:
		v.uint(x)
	case string:
		v.text(x)
	case []string:
		v.strs("", &x)
	case map[string]string:
		r := routesOf(x)
		v.mapLen(len(r))
		for _, route := range r {
			v.text(route.Dst)
			v.text(route.Gateway)
		}
	default:
		v.keep(fmt.Errorf("value of type %T cannot be stored", value))
	}
}

// decoder is the visitor that reads fields. The first error sticks; left counts
// the elements of the current array that were not read. A field that is not
// there keeps its zero value.
type decoder struct {
	u    unpacker
	left int
	err  error
	// text, if not "", is all of the input: texts that are read are parts of it,
	// in one piece of memory.
	text string
	body []byte     // of the object that was read, if it has all fields and no other
	sets *fieldSets // of a ChangeDecoder; else nil
	// strict is the feature version up to which fields must be those of their types. Late
	// fields of later versions that are not are kept unread (lateReader).
	strict uint32
	late   *lateReader // while late fields are read that may be kept unread
}

func newDecoder(b []byte) *decoder { return &decoder{u: unpacker{b}, left: 1} }

func (v *decoder) fail(err error) {
	if v.err == nil && err != nil {
		v.err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
}

// more reports whether an element is left to read, and counts it as read.
func (v *decoder) more() bool {
	if v.err != nil || v.left == 0 {
		return false
	}
	v.left--
	return true
}

// keep puts what was read into p, or keeps the error.
func keep[T any](v *decoder, p *T, x T, err error) {
	if err != nil {
		v.fail(err)
		return
	}
	*p = x
}

// enter reads an array's header and makes it the current one; leave takes the
// elements that were not read, and goes back to the array around it.
func (v *decoder) enter() (outer int) {
	outer = v.left
	n := v.arrayLen()
	if outer > 0 {
		outer--
	}
	v.left = n
	return outer
}

func (v *decoder) leave(outer int) (unread [][]byte) {
	for v.more() {
		raw, err := v.u.skip()
		v.fail(err)
		if err == nil {
			unread = append(unread, bytes.Clone(raw))
		}
	}
	v.left = outer
	return unread
}

// arrayLen reads an array's header. An array cannot have more elements than
// there are bytes left, so a length bomb fails here.
func (v *decoder) arrayLen() int {
	if v.err != nil || v.left == 0 {
		return 0
	}
	n, err := v.u.arrayLen()
	v.fail(err)
	if n > len(v.u.b) {
		v.fail(fmt.Errorf("array of %d elements in %d bytes", n, len(v.u.b)))
	}
	if v.err != nil || n < 0 {
		return 0
	}
	return n
}

func (v *decoder) str(_ string, p *string) {
	if !v.more() {
		return
	}
	b, err := v.u.shared()
	if err != nil {
		v.fail(err)
		return
	}
	if len(b) <= maxWord {
		if word, ok := words[string(b)]; ok {
			*p = word
			return
		}
	}
	if v.text != "" {
		end := len(v.text) - len(v.u.b)
		*p = v.text[end-len(b) : end]
		return
	}
	*p = string(b)
}

// words are texts that stand in many objects and changes: one that is read gets
// no memory of its own. They are the names of all fields and the usual values.
var words = func() map[string]string {
	all := map[string]string{}
	for _, names := range fieldNames {
		for _, name := range names {
			all[name] = name
		}
	}
	for _, word := range [...]string{
		"", "zone", "server", "other", "ipv4", "ipv6", "virtio", "provisioning", "running", "stopped", "unknown", "failed",
		"destroyed", "starting", "stopping", "creating", "joyent", "joyent-minimal", "lx", "bhyve", "kvm", "admin", "external", "installed",
	} {
		all[word] = word
	}
	return all
}()

// maxWord is the length of the longest of them, or more.
const maxWord = 32

func (v *decoder) boolean(_ string, p *bool) {
	if v.more() {
		x, err := v.u.bool()
		keep(v, p, x, err)
	}
}

func (v *decoder) u64(_ string, p *uint64) {
	if v.more() {
		x, err := v.u.uint64()
		keep(v, p, x, err)
	}
}

func (v *decoder) u8(p *uint8) {
	if v.more() {
		x, err := v.u.uint8()
		keep(v, p, x, err)
	}
}

func (v *decoder) u32(_ string, p *uint32) {
	var n uint64
	v.u64("", &n)
	if n > 1<<32-1 {
		v.fail(fmt.Errorf("number %d is over 32 bits", n))
		return
	}
	*p = uint32(n)
}

func (v *decoder) time(_ string, p *Time) {
	if v.more() {
		x, err := v.u.int64()
		keep(v, p, Time(x), err)
	}
}

// bin reads bytes that must be as long as one of sizes, or none. They share the
// input's memory.
func (v *decoder) bin(sizes ...int) []byte {
	var b []byte
	if v.more() {
		x, err := v.u.shared()
		keep(v, &b, x, err)
	}
	if len(b) == 0 {
		return nil
	}
	for _, n := range sizes {
		if len(b) == n {
			return b
		}
	}
	// A copy: else the sizes of every call would be put on the heap.
	v.fail(fmt.Errorf("%d bytes where %v were wanted", len(b), append([]int(nil), sizes...)))
	return nil
}

func (v *decoder) uuid(_ string, p *UUID) { copy(p[:], v.bin(16)) }
func (v *decoder) mac(_ string, p *MAC)   { copy(p[:], v.bin(6)) }

func (v *decoder) addr(_ string, p *netip.Addr) {
	if a, ok := netip.AddrFromSlice(v.bin(4, 16)); ok {
		*p = a
	}
}

func (v *decoder) prefix(_ string, p *netip.Prefix) {
	b := v.bin(5, 17)
	if len(b) == 0 {
		return
	}
	a, _ := netip.AddrFromSlice(b[:len(b)-1])
	*p = netip.PrefixFrom(a, int(b[len(b)-1]))
	if !p.IsValid() {
		v.fail(fmt.Errorf("prefix of %d bits", b[len(b)-1]))
	}
}

// listRoom is how many elements an array is given room for before they are
// read: its header may promise more than there are.
const listRoom = 64

// list reads an array of elements, each by one call of get.
func list[T any](v *decoder, get func(p *T)) []T {
	if v.err != nil || v.left == 0 {
		return nil
	}
	outer := v.enter()
	var out []T
	if v.left > 0 {
		out = make([]T, 0, min(v.left, listRoom))
	}
	for v.left > 0 && v.err == nil {
		var zero T
		out = append(out, zero)
		get(&out[len(out)-1])
	}
	v.leave(outer)
	return out
}

func (v *decoder) strs(_ string, p *[]string) { *p = list(v, func(s *string) { v.str("", s) }) }
func (v *decoder) uuids(_ string, p *[]UUID)  { *p = list(v, func(u *UUID) { v.uuid("", u) }) }
func (v *decoder) macs(_ string, p *[]MAC)    { *p = list(v, func(m *MAC) { v.mac("", m) }) }
func (v *decoder) u32s(_ string, p *[]uint32) { *p = list(v, func(n *uint32) { v.u32("", n) }) }
func (v *decoder) addrs(_ string, p *[]netip.Addr) {
	*p = list(v, func(a *netip.Addr) { v.addr("", a) })
}

func (v *decoder) routes(_ string, p *Routes) {
	flat := list(v, func(s *string) { v.str("", s) })
	if len(flat)%2 != 0 {
		v.fail(fmt.Errorf("routes of %d elements, which is odd", len(flat)))
		return
	}
	for i := 0; i < len(flat); i += 2 {
		*p = append(*p, Route{flat[i], flat[i+1]})
	}
}

// object reads an object of kind; id is used for kinds that are not known.
func (v *decoder) object(kind Kind, id string) Object {
	row := kind.row()
	var o Object
	if row != nil {
		o = row.fields.newObject()
	} else {
		o = &Unknown{OfKind: kind, Key: id}
	}
	if v.err != nil || v.left == 0 {
		return o
	}
	before := v.u.b
	outer := v.enter()
	fields := v.left
	switch {
	case row == nil:
	case row.late != nil && row.late.after(v.strict) > 0 && fields > len(fieldNames[kind])-row.late.after(v.strict):
		o = v.lateObject(row)
	default:
		row.fields.visit(o, v)
	}
	if raw := v.leave(outer); len(raw) > 0 {
		o.tail().raw = raw
	}
	if row != nil && fields == row.written(o) && o.tail().unread == nil {
		v.body = before[:len(before)-len(v.u.b)]
	}
	return o
}
