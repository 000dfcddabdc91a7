package log

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"
)

// lateKinds are the kinds that have fields of later feature versions.
func lateKinds() (all []Kind) {
	for _, kind := range Kinds() {
		if len(kind.FieldsAfter(FeatureFirst)) > 0 {
			all = append(all, kind)
		}
	}
	return all
}

// arrayOf is an object's bytes without the format byte, of its elements.
func arrayOf(elements [][]byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{codeArray16}, uint16(len(elements)))
	return append(b, bytes.Join(elements, nil)...)
}

// elementsOf are the elements of an encoded object.
func elementsOf(t *testing.T, b []byte) (all [][]byte) {
	t.Helper()
	u := unpacker{b[1:]}
	n, err := u.arrayLen()
	for ; n > 0 && err == nil; n-- {
		var raw []byte
		raw, err = u.skip()
		all = append(all, bytes.Clone(raw))
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// changeWith returns the bytes of a change that creates an object of those elements.
func changeWith(t *testing.T, kind Kind, elements [][]byte) []byte {
	t.Helper()
	b, err := NewEncoder().Change(&Change{ID: UUID{1}, Ops: []Op{{Action: Create, Kind: kind, Object: &Unknown{OfKind: kind, extra: extra{raw: elements}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b)
}

// asOldProgram returns how a program of a feature version, which knows no field of a later
// one, stores an object of those elements, and how many bytes of it are fields that it does
// not know: the fields that it knows by their types, the others as they came. An error
// means that it cannot read the change.
func asOldProgram(t *testing.T, kind Kind, version uint32, elements [][]byte) (stored []byte, unknown int, err error) {
	t.Helper()
	row, known := kind.row(), len(FieldNames(kind))-len(kind.FieldsAfter(version))
	v := newDecoder(arrayOf(elements[:min(known, len(elements))]))
	v.strict = FeatureVersion
	o := v.object(kind, "")
	if v.err != nil {
		return nil, 0, v.err
	}
	e := encoder{}
	if len(elements) <= known {
		e.object(o)
		return e.b, 0, nil
	}
	e.array(len(elements))
	e.before = version + 1
	row.fields.visit(o, &e)
	for _, raw := range elements[known:] {
		unknown += len(raw)
	}
	e.extras(elements[known:])
	return e.b, unknown, nil
}

// checkLate takes the elements of an object through a cluster of a feature version.
func checkLate(t *testing.T, kind Kind, version uint32, elements [][]byte) (unread bool) {
	t.Helper()
	where := func() string { return fmt.Sprintf("%s of %x at feature version %d", kind, elements, version) }
	want, unknown, oldErr := asOldProgram(t, kind, version, elements)
	c, err := new(ChangeDecoder).ChangeAt(version, changeWith(t, kind, elements))
	if (err == nil) != (oldErr == nil) {
		t.Fatalf("%s: this program says %v, one of that version %v", where(), err, oldErr)
	}
	if err != nil {
		return false
	}
	o := c.Ops[0].Object
	encoded, err := NewEncoder().Object(o)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(encoded[1:], want) {
		t.Fatalf("%s: stored as\n%x, by a program of that version as\n%x", where(), encoded[1:], want)
	}
	if got := Measure(o, version).Unknown; got != unknown {
		t.Fatalf("%s: %d bytes are fields that a program of that version does not know, want %d", where(), got, unknown)
	}
	// What is read from files and from other servers has the same in memory and in bytes.
	read, err := DecodeObject(kind, o.ID(), encoded)
	if err != nil {
		t.Fatalf("%s: what is stored cannot be read: %v", where(), err)
	}
	if !reflect.DeepEqual(read, Settled(o)) {
		t.Fatalf("%s: a server that restarts has %+v, one that goes on %+v", where(), read, Settled(o))
	}
	// What a change sets replaces what was not read, and leaves the rest.
	full := filled(t, kind)
	for _, name := range kind.FieldsAfter(FeatureFirst) {
		after := Clone(read)
		Assign(after, full, []string{name})
		checkSettled(t, after, where()+" with "+name)
		back := Clone(Settled(after))
		Assign(back, NewObject(kind), []string{name})
		checkSettled(t, back, where()+" with "+name+" and without")
		if got, want := Clone(back), Clone(read); Assign(want, NewObject(kind), []string{name}) != "" || !Equal(got, want) {
			t.Fatalf("%s: with %s and without it is %+v", where(), name, got)
		}
	}
	return len(read.tail().unread) > 0
}

// checkSettled: an object that was settled is what is read from its bytes.
func checkSettled(t *testing.T, o Object, where string) {
	t.Helper()
	settled := Settled(o)
	encoded, err := NewEncoder().Object(settled)
	if err != nil {
		t.Fatal(err)
	}
	read, err := DecodeObject(o.Kind(), o.ID(), encoded)
	if err != nil || !Equal(read, o) || !reflect.DeepEqual(read.tail(), settled.tail()) {
		t.Fatalf("%s: settled as %+v, and read as %+v, %v", where, settled, read, err)
	}
	for _, version := range o.Kind().row().late.versions() {
		if read.tail().unread[version] != nil && !o.Kind().row().late.isUnset(read, version) {
			t.Fatalf("%s: fields of version %d are set and unread", where, version)
		}
	}
}

// lateElements are values of many types and lengths, some in a form that no program writes.
func lateElements() (all [][]byte) {
	var p packer
	add := func(write func()) {
		p.b = nil
		write()
		all = append(all, p.b)
	}
	for _, n := range []uint64{0, 1, 127, 128, 4789, 1 << 16, 1 << 32, 1 << 63} {
		add(func() { p.uint(n) })
	}
	for _, n := range []int{0, 1, 4, 5, 6, 15, 16, 17, 40, 300} {
		add(func() { p.bin(make([]byte, n)) })
		add(func() { p.bin(bytes.Repeat([]byte{7}, n)) })
		add(func() { p.text(string(bytes.Repeat([]byte{'a'}, n))) })
		add(func() { p.array(n); p.b = append(p.b, make([]byte, n)...) })
		add(func() { p.array(n); p.b = append(p.b, bytes.Repeat([]byte{codeFixStr + 1, 'a'}, n)...) })
		add(func() { p.array(n); p.b = append(p.b, bytes.Repeat([]byte{codeBin8, 4, 10, 0, 0, 1}, n)...) })
	}
	add(func() { p.int(-1) })
	add(func() { p.null() })
	add(func() { p.bool(true) })
	add(func() { p.bool(false) })
	add(func() { p.mapLen(1); p.text("a"); p.uint(1) })
	return append(all,
		[]byte{codeUint8, 5}, []byte{codeUint8 + 1, 0, 5}, []byte{codeStr8, 1, 'x'}, []byte{codeArray16, 0, 0}, []byte{codeArray32, 0, 0, 0, 0}, // longer than they must be
		[]byte{0xca, 0, 0, 0, 0}, []byte{0xd4, 1, 2}, []byte{codeFixArray + 1, codeFixArray + 1, codeFixArray}) // a float, an extension, lists in lists
}

// TestLateBytes: whatever bytes stand where later programs have fields, each program stores
// what one of the replicated feature version stores, and reads what is stored: the attack is
// a writer who puts values of wrong types there, so that newer servers differ from older
// ones, or cannot load their files.
func TestLateBytes(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	values := lateElements()
	rounds, long := 40, os.Getenv("RUTTER_LONG") != ""
	if long {
		rounds = 2000
	}
	unread := map[Kind]int{}
	for _, kind := range lateKinds() {
		late := kind.FieldsAfter(FeatureFirst)
		full := elementsOf(t, must(NewEncoder().Object(filled(t, kind))))
		first := full[:len(full)-len(late)]
		for version := uint32(FeatureFirst); version <= FeatureVersion; version++ {
			for i := range late { // each value in each place, the rest as it should be
				for _, value := range values {
					if rng.IntN(4) > 0 && !long {
						continue
					}
					all := slices.Clone(full)
					all[len(first)+i] = value
					if checkLate(t, kind, version, all[:len(first)+i+1+rng.IntN(len(late)-i)]) {
						unread[kind]++
					}
				}
			}
			for range rounds {
				all := slices.Clone(first)
				for i := range rng.IntN(len(late) + 3) {
					switch {
					case rng.IntN(3) == 0 && i < len(late):
						all = append(all, full[len(first)+i])
					default:
						all = append(all, values[rng.IntN(len(values))])
					}
				}
				checkLate(t, kind, version, all)
			}
		}
		if unread[kind] == 0 {
			t.Errorf("%s: no late field was kept unread: the test sees too little", kind)
		}
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return bytes.Clone(b)
}

// FuzzLateBytes is TestLateBytes for any elements that are msgpack.
func FuzzLateBytes(f *testing.F) {
	for i, value := range lateElements() {
		f.Add(uint8(i), uint8(1+i%FeatureVersion), uint8(0), value)
		f.Add(uint8(i+1), uint8(1+i%FeatureVersion), uint8(1), append(bytes.Clone(value), value...))
	}
	kinds := lateKinds()
	f.Fuzz(func(t *testing.T, kind, version, kept uint8, behind []byte) {
		k := kinds[int(kind)%len(kinds)]
		full := elementsOf(t, must(NewEncoder().Object(filled(t, k))))
		late := len(k.FieldsAfter(FeatureFirst))
		elements := slices.Clone(full[:len(full)-late+int(kept)%(late+1)])
		for u := (unpacker{behind}); len(u.b) > 0 && len(elements) < 64; {
			raw, err := u.skip()
			if err != nil {
				return
			}
			elements = append(elements, bytes.Clone(raw))
		}
		checkLate(t, k, 1+uint32(version)%FeatureVersion, elements)
	})
}

// TestChangesCarryNothingUnread: a server that makes a change of an object that it has does
// not send on what it could not read of it, which the others could not read either.
func TestChangesCarryNothingUnread(t *testing.T) {
	t.Parallel()
	full := elementsOf(t, must(NewEncoder().Object(filled(t, KindVM))))
	full[len(full)-1] = []byte{7}
	o, err := DecodeObject(KindVM, "", append([]byte{FormatVersion}, arrayOf(full)...))
	if err != nil || !HasUnknownFields(o) {
		t.Fatalf("%+v, %v", o, err)
	}
	c := &Change{ID: UUID{1}, Ops: []Op{{Action: Update, Kind: KindVM, Set: []string{"alias"}, Object: o}}}
	sent, err := DecodeChange(must(NewEncoder().Change(c)))
	if err != nil {
		t.Fatal(err)
	}
	if got := sent.Ops[0].Object; HasUnknownFields(got) || !Equal(got, o) {
		t.Errorf("sent as %+v", got)
	}
}
