package log

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// add writes golden files that do not exist yet. One that exists is never
// edited: a format that must change gets a new version and a new file.
var add = flag.Bool("add", false, "write golden files that are missing")

// golden compares got with testdata/name.
func golden(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name)
	want, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && *add {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if err != nil {
		t.Fatalf("%v (go test -add writes it)", err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("%s:\n got %s\nwant %s", name, got, want)
	}
	return want
}

// outgrown are the examples whose golden files a program of fewer fields wrote.
var outgrown = map[string]bool{"server": true}

func TestGoldenEvents(t *testing.T) {
	for name, e := range goldenEvents(t) {
		t.Run(name, func(t *testing.T) {
			b, err := NewEncoder().Event(e)
			if err != nil {
				t.Fatal(err)
			}
			if outgrown[name] {
				// Its kind has more fields now: the old bytes are only read.
				old, err := os.ReadFile(filepath.Join("testdata", "event-"+name+"-v1.hex"))
				if err != nil {
					t.Fatal(err)
				}
				if b, err = hex.DecodeString(string(bytes.TrimSpace(old))); err != nil {
					t.Fatal(err)
				}
			}
			text := golden(t, "event-"+name+"-v1.hex", append([]byte(hex.EncodeToString(b)), '\n'))
			stored, err := hex.DecodeString(string(bytes.TrimSpace(text)))
			if err != nil {
				t.Fatal(err)
			}
			back, err := DecodeEvent(stored)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(back, e) {
				t.Errorf("decoded\n%+v\nwant\n%+v", back, e)
			}
			object, err := json.MarshalIndent(back.Object, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "object-"+name+".json", append(object, '\n'))
		})
	}
}

func TestGoldenChangeAndResult(t *testing.T) {
	enc := NewEncoder()
	c := exampleChange()
	b, err := enc.Change(c)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "change-v1.hex", append([]byte(hex.EncodeToString(b)), '\n'))
	if back, err := DecodeChange(b); err != nil || !reflect.DeepEqual(back, c) {
		t.Errorf("decoded %+v, %v\nwant %+v", back, err, c)
	}
	c.By = Author{RoleCN, UUID{0xcc, 15: 1}}
	if b, err = enc.Change(c); err != nil {
		t.Fatal(err)
	}
	golden(t, "change-by-v1.hex", append([]byte(hex.EncodeToString(b)), '\n'))
	if back, err := DecodeChange(b); err != nil || !reflect.DeepEqual(back, c) {
		t.Errorf("decoded %+v, %v\nwant %+v", back, err, c)
	}
	c.By, c.Ops[0].Options = Author{}, []Option{OptionAnyOwner, OptionReserveIP}
	if b, err = enc.Change(c); err != nil {
		t.Fatal(err)
	}
	golden(t, "change-options-v1.hex", append([]byte(hex.EncodeToString(b)), '\n'))
	if back, err := DecodeChange(b); err != nil || !reflect.DeepEqual(back, c) {
		t.Errorf("decoded %+v, %v\nwant %+v", back, err, c)
	}
	c.Ops[0].Options, c.Ops[1].IfSeq, c.Ops[2].IfSeq = nil, 1207, 9
	c.Ops[2].Options = []Option{OptionAnyOwner}
	if b, err = enc.Change(c); err != nil {
		t.Fatal(err)
	}
	golden(t, "change-ifseq-v1.hex", append([]byte(hex.EncodeToString(b)), '\n'))
	if back, err := DecodeChange(b); err != nil || !reflect.DeepEqual(back, c) {
		t.Errorf("decoded %+v, %v\nwant %+v", back, err, c)
	}
	c.Reverts = Reverts{{1042, 1042}, {1050, 1060}}
	if b, err = enc.Change(c); err != nil {
		t.Fatal(err)
	}
	golden(t, "change-reverts-v1.hex", append([]byte(hex.EncodeToString(b)), '\n'))
	if back, err := DecodeChange(b); err != nil || !reflect.DeepEqual(back, c) {
		t.Errorf("decoded %+v, %v\nwant %+v", back, err, c)
	}
	for name, r := range map[string]*Result{
		"refused-invalid": {ChangeID: c.ID, Refusal: &Refusal{Code: CodeInvalidParameters, Message: "m", Errors: []FieldError{{Field: "macs", Code: ElementInvalid, Message: "unknown MAC addresses", Invalid: []string{"90:b8:d0:00:00:01"}}}}},
		"accepted":        {ChangeID: c.ID, First: 7, Last: 8, Events: 2, IDs: []string{"a", "b"}},
		"refused":         {ChangeID: c.ID, Refusal: &Refusal{Code: CodeInUse, Message: "network is in use", Errors: []FieldError{{Field: "uuid", Code: ElementUsedBy, Message: "nic", Remedy: "delete it", Type: "nic", ID: "90:b8:d0:00:00:01"}}}},
	} {
		b, err := enc.Result(r)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "result-"+name+"-v1.hex", append([]byte(hex.EncodeToString(b)), '\n'))
		if back, err := DecodeResult(b); err != nil || !reflect.DeepEqual(back, r) {
			t.Errorf("decoded %+v, %v\nwant %+v", back, err, r)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	enc := NewEncoder()
	rapid.Check(t, func(t *rapid.T) {
		e := drawEvent(t)
		b, err := enc.Event(e)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeEvent(b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back, e) {
			t.Fatalf("decode(encode(x)) = %+v, want %+v", back, e)
		}
		again, err := enc.Event(back)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("second encoding differs: %v", err)
		}
		if c := Clone(e.Object); !reflect.DeepEqual(c, e.Object) {
			t.Fatalf("clone = %+v, want %+v", c, e.Object)
		}
		ob, err := enc.Object(e.Object)
		if err != nil {
			t.Fatal(err)
		}
		if o, err := DecodeObject(e.Kind, e.ID, ob); err != nil || !reflect.DeepEqual(o, e.Object) {
			t.Fatalf("object = %+v, %v", o, err)
		}
		_, written, err := enc.EventAndBody(e)
		_, read, err2 := DecodeEventAndBody(b)
		_, alone, err3 := DecodeObjectAndBody(e.Kind, e.ID, ob)
		if err := errors.Join(err, err2, err3); err != nil || !bytes.Equal(read, written) || !bytes.Equal(alone, written) {
			t.Fatalf("body %x of the event, %x of the object, %x was written; %v", read, alone, written, err)
		}
	})
}

// A body with other fields than this program writes is none.
func TestBodyOfOtherFields(t *testing.T) {
	ob, err := NewEncoder().Object(&NICTag{Name: "a", MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	more := append(append([]byte{ob[0], ob[1] + 1}, ob[2:]...), codeNil)
	for _, b := range [][]byte{more, {FormatVersion, codeFixArray + 1, codeFixStr + 1, 'a'}} {
		if o, body, err := DecodeObjectAndBody(KindNICTag, "a", b); err != nil || o.ID() != "a" || body != nil {
			t.Errorf("%x: %+v, body %x, %v; want a tag and no body", b, o, body, err)
		}
	}
}

// Revert(after, Diff(before, after)) is before: an event folds backwards.
func TestRevertUndoesDiff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := drawObject(t, rapid.SampledFrom(Kinds()).Draw(t, "kind"))
		after := Clone(before)
		names := FieldNames(before.Kind())
		Assign(after, drawObject(t, before.Kind()), rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(t, "set"))
		changed := Diff(before, after)
		got, err := Revert(after, changed)
		if err != nil {
			t.Fatal(err)
		}
		if !Equal(got, before) {
			t.Fatalf("reverted to %+v, want %+v (changed %+v)", got, before, changed)
		}
		if (len(changed) == 0) != Equal(before, after) {
			t.Fatalf("Diff says %v, Equal says %v", changed, Equal(before, after))
		}
	})
}

// A newer program's trailing fields, on the event, on the object, and on an
// object of a kind that does not exist yet, survive a round trip.
func TestUnknownFieldsAndKindsSurvive(t *testing.T) {
	raw := func(build func(*msgpack.Encoder)) []byte {
		var buf bytes.Buffer
		buf.WriteByte(FormatVersion)
		enc := msgpack.NewEncoder(&buf)
		enc.UseCompactInts(true)
		build(enc)
		return buf.Bytes()
	}
	event := func(enc *msgpack.Encoder, kind uint64, object func()) {
		enc.EncodeArrayLen(13)
		enc.EncodeUint(kind)
		enc.EncodeUint(1)
		enc.EncodeString("thing")
		enc.EncodeUint(1)
		enc.EncodeInt(5)
		enc.EncodeString("napi")
		enc.EncodeBytes(make([]byte, 16))
		enc.EncodeUint(0)
		enc.EncodeArrayLen(0)
		object()
		enc.EncodeArrayLen(0)
		enc.EncodeArrayLen(0) // it reverts nothing
		enc.EncodeMap(map[string]any{"from": "the future"})
	}
	for name, b := range map[string][]byte{
		"known kind": raw(func(enc *msgpack.Encoder) {
			event(enc, uint64(KindNICTag), func() {
				enc.EncodeArrayLen(7)
				enc.EncodeString("thing")
				enc.EncodeBytesLen(0)
				enc.EncodeUint(1500)
				enc.EncodeBytesLen(0)
				enc.EncodeArrayLen(0)
				enc.EncodeString("unknown field")
				enc.EncodeBool(true)
			})
		}),
		"unknown kind": raw(func(enc *msgpack.Encoder) {
			event(enc, 200, func() {
				enc.EncodeArrayLen(2)
				enc.EncodeString("thing")
				enc.EncodeUint(99)
			})
		}),
	} {
		t.Run(name, func(t *testing.T) {
			e, err := DecodeEvent(b)
			if err != nil {
				t.Fatal(err)
			}
			e.ChangeID = UUID{}
			got, err := NewEncoder().Event(e)
			if err != nil {
				t.Fatal(err)
			}
			// The only difference allowed is the zero change id's form.
			want := bytes.Replace(b, append([]byte{0xc4, 16}, make([]byte, 16)...), []byte{0xc4, 0}, 1)
			if !bytes.Equal(got, want) {
				t.Errorf("after a round trip\n got %x\nwant %x", got, want)
			}
			clone := Clone(e.Object)
			if !reflect.DeepEqual(clone.tail().raw, e.Object.tail().raw) {
				t.Error("a clone lost the unknown fields")
			}
		})
	}
}

// Fields that an older program did not write read as zero values.
func TestMissingFieldsDefault(t *testing.T) {
	var buf bytes.Buffer
	buf.WriteByte(FormatVersion)
	enc := msgpack.NewEncoder(&buf)
	enc.EncodeArrayLen(1)
	enc.EncodeString("external")
	o, err := DecodeObject(KindNICTag, "external", buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if want := (&NICTag{Name: "external"}); !reflect.DeepEqual(o, want) {
		t.Errorf("got %+v, want %+v", o, want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	good, err := NewEncoder().Event(exampleEvents()["nic"])
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, ErrCorrupt},
		{"other format", append([]byte{FormatVersion + 1}, good[1:]...), ErrFormat},
		{"cut short", good[:len(good)-3], ErrCorrupt},
		{"bytes after the end", append(bytes.Clone(good), 0), ErrCorrupt},
		{"array bomb", []byte{FormatVersion, 0xdd, 0xff, 0xff, 0xff, 0xff}, ErrCorrupt},
		{"string bomb", []byte{FormatVersion, 0x93, 1, 1, 0xdb, 0xff, 0xff, 0xff, 0xff}, ErrCorrupt},
		{"too large", make([]byte, MaxEventBytes+1), ErrTooLarge},
	} {
		if _, err := DecodeEvent(test.b); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, err, test.want)
		}
	}
}

func TestBatch(t *testing.T) {
	var batch []byte
	changes := [][]byte{[]byte("one"), {}, []byte("three")}
	for _, c := range changes {
		batch = AppendBatch(batch, c)
	}
	got, err := SplitBatch(batch)
	if err != nil || len(got) != 3 || string(got[0]) != "one" || string(got[2]) != "three" {
		t.Fatalf("got %q, %v", got, err)
	}
	for cut := range batch {
		if got, err := SplitBatch(batch[:cut]); err == nil && len(got) == 3 {
			t.Errorf("cut at %d: got all changes back", cut)
		}
	}
	if _, err := SplitBatch([]byte{9}); !errors.Is(err, ErrFormat) {
		t.Errorf("other format: got %v", err)
	}
}

func TestHashChain(t *testing.T) {
	// (printf '%064d%016x' 0 1; printf event | xxd -p) | tr -d '\n' | xxd -r -p | sha256sum
	const want = "b62836bfd11483ac518df569e76b40b52a937bd43e9a59a42541f2fbe39265ba"
	if got := (Hash{}).Next(1, []byte("event")); got.String() != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func FuzzDecodeEvent(f *testing.F) {
	for _, e := range exampleEvents() {
		b, err := NewEncoder().Event(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEvent(b)
		if err != nil {
			return
		}
		enc := NewEncoder()
		again, err := enc.Event(e)
		if err != nil {
			t.Fatalf("decoded, but does not encode: %v", err)
		}
		back, err := DecodeEvent(again)
		if err != nil || !reflect.DeepEqual(back, e) {
			t.Fatalf("second decode: %+v, %v; want %+v", back, err, e)
		}
	})
}

func FuzzDecodeChange(f *testing.F) {
	example, err := NewEncoder().Change(exampleChange())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	reverting := exampleChange()
	reverting.Reverts = Reverts{{3, 4}, {9, 9}}
	f.Add(must(NewEncoder().Change(reverting)))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeChange(b)
		var d ChangeDecoder
		if _, err := d.Change(example); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second may remember what the first read
			if got, gotErr := d.Change(b); !reflect.DeepEqual(got, c) || (gotErr == nil) != (err == nil) {
				t.Fatalf("a decoder that had read others: %+v, %v; want %+v, %v", got, gotErr, c, err)
			}
		}
		if err != nil {
			return
		}
		again, err := NewEncoder().Change(c)
		if err != nil {
			t.Fatalf("decoded, but does not encode: %v", err)
		}
		if back, err := DecodeChange(again); err != nil || !reflect.DeepEqual(back, c) {
			t.Fatalf("second decode: %+v, %v; want %+v", back, err, c)
		}
	})
}

func FuzzSplitBatch(f *testing.F) {
	f.Add(AppendBatch(AppendBatch(nil, []byte("one")), []byte("two")))
	f.Fuzz(func(t *testing.T, b []byte) {
		changes, err := SplitBatch(b)
		if err != nil || len(changes) == 0 {
			return
		}
		var again []byte
		for _, c := range changes {
			again = AppendBatch(again, c)
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("got %x, want %x", again, b)
		}
	})
}

func FuzzParseObject(f *testing.F) {
	f.Add(uint8(KindNIC), []byte(`{"mac":"90:b8:d0:00:00:01","ip":"10.0.0.1"}`))
	f.Add(uint8(KindNetwork), []byte(`{"routes":{"10.0.0.0/8":"10.1.0.1"},"subnet":"10.1.0.0/24"}`))
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		o, names, err := ParseObject(Kind(kind), b)
		if err != nil {
			var refusal *Refusal
			if !errors.As(err, &refusal) {
				t.Fatalf("error %v is not a refusal", err)
			}
			return
		}
		text, err := json.Marshal(o)
		if err != nil {
			return // an address with a zone, say, has no text that parses; Decide refuses it
		}
		if _, _, err := ParseObject(Kind(kind), text); err != nil {
			t.Fatalf("parsed %v of %s, but not its own JSON %s: %v", names, b, text, err)
		}
	})
}

func BenchmarkEncodeEvent(b *testing.B) {
	enc, e := NewEncoder(), exampleEvents()["nic"]
	for b.Loop() {
		if _, err := enc.Event(e); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeEvent(b *testing.B) {
	stored, err := NewEncoder().Event(exampleEvents()["nic"])
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(stored)))
	for b.Loop() {
		if _, err := DecodeEvent(stored); err != nil {
			b.Fatal(err)
		}
	}
}

// The head of an event is what DecodeEvent reads, without what follows it.
func TestDecodeEventHead(t *testing.T) {
	e := &Event{
		Kind: KindNICTag, Action: Update, ID: "a", Revision: 7, Time: 8, Actor: "b", ChangeID: UUID{9}, More: 10,
		Scopes: []Scope{AllScope()}, Object: &NICTag{Name: "a", MTU: 1500}, Changed: []FieldChange{{Path: "mtu", Old: uint64(1400)}},
	}
	b, err := NewEncoder().Event(e)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeEventHead(b)
	if err != nil {
		t.Fatal(err)
	}
	want := *e
	want.Object, want.Changed = nil, nil
	if !reflect.DeepEqual(got, &want) {
		t.Errorf("got %+v, want %+v", got, &want)
	}
	if _, err := DecodeEventHead(b[:20]); err == nil {
		t.Error("half a head was taken")
	}
	_, body, err := NewEncoder().EventAndBody(e)
	if err != nil {
		t.Fatal(err)
	}
	of, gotBody, err := EventObject(b)
	if err != nil || of.Kind != e.Kind || of.Action != e.Action || of.ID != e.ID || of.Revision != e.Revision || !bytes.Equal(gotBody, body) {
		t.Errorf("got %+v, %x, %v, want %x", of, gotBody, err, body)
	}
	if _, _, err := EventObject(b[:20]); err == nil {
		t.Error("half an object was taken")
	}
}
