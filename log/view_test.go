package log

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// checkView compares what a view says with what the decoder says.
func checkView(t interface {
	Helper()
	Fatalf(string, ...any)
}, b []byte,
) {
	t.Helper()
	var v EventView
	e, err := DecodeEvent(b)
	if err != nil {
		if v.Read(b) == nil { // it has not looked so far; nothing may break when it does
			_ = v.EachScope(func([]byte) bool { return true })
			_, _ = v.FieldHas(3, "x")
			_, _, _ = v.Old("gateway", "x")
		}
		return
	}
	if err := v.Read(b); err != nil {
		t.Fatalf("the decoder reads it, the view does not: %v", err)
	}
	if v.Kind != e.Kind || v.Action != e.Action || string(v.ID) != e.ID || v.Revision != e.Revision || v.Time != e.Time ||
		string(v.Actor) != e.Actor || v.ChangeID != e.ChangeID || v.More != e.More {
		t.Fatalf("view %+v of event %+v", v, e)
	}
	var scopes []Scope
	if err := v.EachScope(func(b []byte) bool {
		var s Scope
		if err := s.UnmarshalBinary(b); err != nil {
			t.Fatalf("scope %x: %v", b, err)
		}
		scopes = append(scopes, s)
		return true
	}); err != nil || !slices.Equal(scopes, e.Scopes) {
		t.Fatalf("scopes %v (%v), want %v", scopes, err, e.Scopes)
	}
	for _, c := range e.Changed {
		text, _ := c.Old.(string)
		if changed, _, err := v.Old(c.Path, text); !changed && text != "" || err != nil {
			t.Fatalf("%s changed: the view says %v, %v", c.Path, changed, err)
		}
	}
}

func TestEventView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEvent(t)
		b, err := NewEncoder().Event(e)
		if err != nil {
			t.Skip(err)
		}
		checkView(t, b)
		var v EventView
		if err := v.Read(b); err != nil {
			t.Fatal(err)
		}
		for i, name := range FieldNames(e.Kind) {
			if value, _ := Field(e.Object, name); name == "uuid" && value != nil {
				id := mustUUID(value.(string))
				if has, err := v.FieldHas(i, string(id[:])); !has || err != nil {
					t.Fatalf("uuid %s: %v, %v", id, has, err)
				}
			}
		}
		for _, c := range e.Changed {
			if text, ok := c.Old.(string); ok {
				if changed, was, err := v.Old(c.Path, text); !changed || !was || err != nil {
					t.Fatalf("%s was %q: %v, %v, %v", c.Path, text, changed, was, err)
				}
			}
			if list, ok := c.Old.([]string); ok {
				if _, was, err := v.Old(c.Path, list[len(list)-1]); !was || err != nil {
					t.Fatalf("%s was %q: %v, %v", c.Path, list, was, err)
				}
			}
		}
		if changed, was, err := v.Old("no such", ""); changed || was || err != nil {
			t.Fatalf("a field that did not change: %v, %v, %v", changed, was, err)
		}
	})
}

func FuzzEventView(f *testing.F) {
	for _, e := range exampleEvents() {
		b, err := NewEncoder().Event(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { checkView(t, b) })
}

// Whatever the bytes, pass takes what skip takes.
func FuzzPass(f *testing.F) {
	f.Add([]byte{0x92, 0xc4, 1, 7, 0xa1, 'x', 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		slow, fast := unpacker{b}, unpacker{b}
		_, err := slow.skip()
		if got := fast.pass(1); (got == nil) != (err == nil) || err == nil && len(slow.b) != len(fast.b) {
			t.Errorf("%x: pass %v with %d left, skip %v with %d left", b, got, len(fast.b), err, len(slow.b))
		}
	})
}

func TestPassIsSkip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "bytes")
		slow, fast := unpacker{b}, unpacker{b}
		_, err := slow.skip()
		if got := fast.pass(1); (got == nil) != (err == nil) || err == nil && len(slow.b) != len(fast.b) {
			t.Fatalf("%x: pass %v with %d left, skip %v with %d left", b, got, len(fast.b), err, len(slow.b))
		}
	})
}
