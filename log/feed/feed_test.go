package feed

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
)

var rewrite = flag.Bool("rewrite", false, "write golden files that do not exist yet; existing ones are never changed")

func uuid(b byte) (u log.UUID) {
	for i := range u {
		u[i] = b + byte(i)
	}
	return u
}

// examples has one message of each type.
func examples() map[string]Message {
	chain := log.ChainPrefix{1, 2, 3, 4, 5, 6, 7, 8}
	vnet := log.VNetScope(1234)
	return map[string]Message{
		"entry":            &Entry{Seq: 42, Chain: chain, Event: []byte{1, 0x90}},
		"object":           &Object{42, vnet, log.KindNIC, "90:b8:d0:01:02:03", 3, 41, []byte{1, 0x91, 0xc0}},
		"scope_begin":      &ScopeBegin{vnet, 42, 7},
		"scope_end":        &ScopeEnd{vnet, 42, chain, 7},
		"scope_dropped":    &ScopeDropped{log.CNScope(uuid(16)), 43},
		"bookmark":         &Bookmark{44, chain, nil},
		"bookmark_digests": &Bookmark{44, chain, []ScopeDigest{{log.AllScope(), log.Digest{Hi: 1, Lo: 2}}, {vnet, log.Digest{Hi: 3, Lo: 4}}}},
		"reset":            &Reset{45, ResetCompacted, "the log starts at 40"},
		"drain":            &Drain{46, DrainShutdown, "the server stops"},
		"welcome":          &Welcome{Version: Version, Head: log.Cursor{Cluster: uuid(1), Seq: 47, Chain: chain}},
		"welcome_knows":    &Welcome{Version, log.Cursor{Cluster: uuid(1), Seq: 47, Chain: chain}, 6},
		"pong":             &Pong{48},
		"tell":             &Tell{49},
		"hello": &Hello{
			Version: Version, CN: uuid(32), Incarnation: 9, Session: 10,
			Cursor: log.Cursor{Cluster: uuid(1), Seq: 41, Chain: chain},
			Scopes: []HeldScope{{log.AllScope(), 41}, {vnet, 42}, {log.NetworkScope(uuid(64)), 3}},
		},
		"hello_abilities": &Hello{Version: Version, CN: uuid(32), Incarnation: 9, Session: 10, Abilities: AnswersRequests},
		"request":         &Request{7, "PUT", "/vmms/40414243-4445-4647-8849-4a4b4c4d4e4f/state", "2.0.0", []byte(`{"state":{"type":"running"}}`)},
		"response":        &Response{7, 200, []byte(`{"updated_runtime":null}`)},
		"ring":            &Ring{[]log.UUID{uuid(64), uuid(80)}},
		"inventory":       &Inventory{3, true, true, true, []InventoryVM{{uuid(64), []byte{1, 0x90}}}},
		"inventory_gone":  &Inventory{Number: 4, VMs: []InventoryVM{{uuid(64), []byte{}}}},
		"watermark":       &Watermark{Applied: 42, Programmed: 41, Objects: 1, Links: 2, Neighbours: 3, FDB: 4, Failing: 5, Healed: 6},
		"watermark_log": &Watermark{
			Applied: 42, Programmed: 41, Objects: 1, Links: 2, Neighbours: 3, FDB: 4, Failing: 5, Healed: 6,
			Log: log.Cursor{Cluster: uuid(1), Seq: 42, Chain: chain}, Checked: 40, Mismatches: 7, Resets: 8, LastReset: ResetAhead,
		},
		"watermark_drift": &Watermark{
			Applied: 42, Programmed: 41, Healed: 2, Log: log.Cursor{Cluster: uuid(1), Seq: 42, Chain: chain},
			Drift: "z1/fabric0: link was down\nz1/fabric0: address 10.0.0.1/24 was gone",
		},
		"watermark_waits": &Watermark{
			Applied: 42, Programmed: 31, Failing: 2, Log: log.Cursor{Cluster: uuid(1), Seq: 42, Chain: chain},
			Reached: 41, List: 3, Listed: true, Waits: []Wait{
				{Kind: WaitNIC, Idle: true, VNet: 1234, NIC: log.MAC{2, 0, 0, 0, 0, 1}, VM: uuid(16), RetryAt: 1_700_000_000},
				{Kind: WaitEntry, VNet: 1234, NIC: log.MAC{2, 0, 0, 0, 0, 2}, Peer: log.MAC{2, 0, 0, 0, 0, 3}, VM: uuid(32), Why: "neighbour 10.0.0.3 of 02:00:00:00:00:02: no room"},
				{Kind: WaitVNet, VNet: 7, Why: "vxlan sdcvxl7: file exists"},
			},
		},
		"watermark_list": &Watermark{Applied: 42, Programmed: 31, Log: log.Cursor{Cluster: uuid(1), Seq: 42, Chain: chain}, Reached: 41, List: 3},
		"again":          &Again{44, vnet},
		"report":         &Report{[]byte("opaque")},
		"ping":           &Ping{},
		"condition": &Condition{
			Hold: "00c0ffee00c0ffee", Going: 24, Links: 25, Was: uuid(1), Log: uuid(2),
			Names: "fabric link of 90:b8:d0:00:00:01\nvxlan sdcvxl5", Trouble: "the cache cannot be written: no space left on device",
		},
	}
}

func TestGolden(t *testing.T) {
	for name, m := range examples() {
		t.Run(name, func(t *testing.T) {
			got, err := Append(nil, m)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "golden", name+".v1.hex")
			if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && *rewrite {
				if err := os.WriteFile(path, []byte(hex.EncodeToString(got)+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want, err := hex.DecodeString(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("encoded\n got %x\nwant %x", got, want)
			}
			f, err := NewReader(bytes.NewReader(want)).Next()
			if err != nil {
				t.Fatal(err)
			}
			back, err := Decode(f)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(back, m) {
				t.Errorf("decoded\n got %+v\nwant %+v", back, m)
			}
		})
	}
}

func TestEveryTypeHasAnExample(t *testing.T) {
	seen := map[Type]bool{}
	for _, m := range examples() {
		typ, _ := m.frame()
		seen[typ] = true
	}
	for typ := range 256 {
		if newMessage(Type(typ)) != nil && !seen[Type(typ)] {
			t.Errorf("frame type %d has no example, so no golden file", typ)
		}
	}
}

func TestTrailingFieldsAreSkipped(t *testing.T) {
	for _, name := range []string{"object", "bookmark", "hello", "watermark", "welcome", "reset", "scope_end"} {
		m := examples()[name]
		b, err := Append(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		b, err = finish(append(b, 0xaa, 0xbb), 0)
		if err != nil {
			t.Fatal(err)
		}
		f, err := NewReader(bytes.NewReader(b)).Next()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Decode(f); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%s with two bytes more: got %+v, %v; want %+v", name, got, err, m)
		}
	}
}

func TestReaderRefuses(t *testing.T) {
	good, err := Append(nil, examples()["bookmark"])
	if err != nil {
		t.Fatal(err)
	}
	flip := func(i int) []byte {
		b := bytes.Clone(good)
		b[i] ^= 1
		return b
	}
	for _, test := range []struct {
		name  string
		bytes []byte
		want  error
	}{
		{"nothing", nil, io.EOF},
		{"half a header", good[:9], io.ErrUnexpectedEOF},
		{"no payload", good[:headerSize], io.ErrUnexpectedEOF},
		{"half a payload", good[:len(good)-1], io.ErrUnexpectedEOF},
		{"type flipped", flip(4), ErrFrame},
		{"seq flipped", flip(9), ErrFrame},
		{"checksum flipped", flip(14), ErrFrame},
		{"payload flipped", flip(headerSize), ErrFrame},
		{"4 GiB announced", append([]byte{255, 255, 255, 255}, good[4:]...), ErrTooLarge},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := NewReader(bytes.NewReader(test.bytes)).Next(); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, test := range []struct {
		name string
		f    Frame
		want error
	}{
		{"unknown type", Frame{Type: 200}, ErrUnknownType},
		{"short bookmark", Frame{Type: TypeBookmark, Payload: []byte{1}}, ErrFrame},
		{"bad scope", Frame{Type: TypeScopeDropped, Payload: []byte{2, 3, 0}}, ErrFrame},
		{"scope over the end", Frame{Type: TypeScopeDropped, Payload: []byte{17, 2}}, ErrFrame},
		{"too many scopes", Frame{Type: TypeHello, Payload: append(make([]byte, 2+16+8+8+16+8), 255, 255, 255, 255)}, ErrTooLarge},
		{"too many rings", Frame{Type: TypeRing, Payload: []byte{0, 0, 4, 1}}, ErrTooLarge},
		{"too many VMs", Frame{Type: TypeInventory, Payload: []byte{7, 255, 255, 255, 255}}, ErrTooLarge},
		{"body over its bound", Frame{Type: TypeResponse, Payload: append([]byte{0, 200, 0, 1, 0, 1}, make([]byte, MaxCall+1)...)}, ErrTooLarge},
		{"object bytes bomb", Frame{Type: TypeObject, Payload: append(append([]byte{1, 1, 3}, make([]byte, 18)...), 255, 255, 255, 255)}, ErrFrame},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := Decode(test.f); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestAppendRefusesTooLarge(t *testing.T) {
	b := []byte("before")
	for name, m := range map[string]Message{
		"payload": &Report{make([]byte, MaxPayload+1)},
		"text":    &Drain{Text: strings.Repeat("x", 1<<16)},
		"scopes":  &Hello{Scopes: make([]HeldScope, MaxScopes+1)},
		"call":    &Request{Body: make([]byte, MaxCall+1)},
		"rings":   &Ring{make([]log.UUID, MaxRings+1)},
		"VMs":     &Inventory{VMs: make([]InventoryVM, MaxInventory+1)},
	} {
		got, err := Append(b, m)
		if !errors.Is(err, ErrTooLarge) || string(got) != "before" {
			t.Errorf("%s: got %q, %v; want the bytes as they were and ErrTooLarge", name, got, err)
		}
	}
}

func TestLargestHelloFits(t *testing.T) {
	h := &Hello{Scopes: make([]HeldScope, MaxScopes)}
	for i := range h.Scopes {
		h.Scopes[i] = HeldScope{log.CNScope(uuid(byte(i))), log.Seq(i)}
	}
	if _, err := Append(nil, h); err != nil {
		t.Error(err)
	}
}

// The reader sees the same messages, however the bytes arrive.
func TestRoundTrip(t *testing.T) {
	scopes := rapid.Custom(func(t *rapid.T) log.Scope {
		switch rapid.IntRange(0, 3).Draw(t, "sort") {
		case 0:
			return log.AllScope()
		case 1:
			return log.VNetScope(rapid.Uint32Max(log.MaxVNet).Draw(t, "vnet"))
		case 2:
			return log.CNScope(uuid(rapid.Byte().Draw(t, "cn")))
		}
		return log.NetworkScope(uuid(rapid.Byte().Draw(t, "network")))
	})
	rapid.Check(t, func(t *rapid.T) {
		seq := log.Seq(rapid.Uint64().Draw(t, "seq"))
		var chain log.ChainPrefix
		copy(chain[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "chain"))
		hello := &Hello{Version: 1, CN: uuid(3), Incarnation: rapid.Uint64().Draw(t, "incarnation"), Cursor: log.Cursor{Seq: seq, Chain: chain}}
		for range rapid.IntRange(0, 5).Draw(t, "scopes") {
			hello.Scopes = append(hello.Scopes, HeldScope{scopes.Draw(t, "scope"), log.Seq(rapid.Uint64().Draw(t, "as-of"))})
		}
		sent := []Message{
			hello,
			&Entry{Seq: seq, Chain: chain, Event: rapid.SliceOf(rapid.Byte()).Draw(t, "event")},
			&Object{seq, scopes.Draw(t, "scope"), log.KindVM, rapid.String().Draw(t, "id"), 1, seq, rapid.SliceOf(rapid.Byte()).Draw(t, "object")},
			&ScopeEnd{scopes.Draw(t, "scope"), seq, chain, rapid.Uint32().Draw(t, "count")},
			&Drain{seq, DrainBehind, rapid.StringN(0, 50, 1000).Draw(t, "text")},
		}
		var wire []byte
		for _, m := range sent {
			var err error
			if wire, err = Append(wire, m); err != nil {
				t.Fatal(err)
			}
		}
		r := NewReader(io.MultiReader(bytes.NewReader(wire[:len(wire)/2]), bytes.NewReader(wire[len(wire)/2:])))
		for _, want := range sent {
			f, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if got, err := Decode(f); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("got %+v, %v; want %+v", got, err, want)
			}
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Fatalf("after the last frame: got %v, want EOF", err)
		}
	})
}

// What decodes is written and read again as the same message.
func FuzzDecode(f *testing.F) {
	for _, m := range examples() {
		b, err := Append(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(b[4]), uint64(7), b[headerSize:])
	}
	f.Fuzz(func(t *testing.T, typ uint8, seq uint64, payload []byte) {
		m, err := Decode(Frame{Type(typ), log.Seq(seq), payload})
		if err != nil {
			return
		}
		b, err := Append(nil, m)
		if err != nil {
			if len(payload) > MaxPayload {
				return
			}
			t.Fatalf("%+v decodes but cannot be written: %v", m, err)
		}
		frame, err := NewReader(bytes.NewReader(b)).Next()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(frame)
		if h, ok := m.(*Hello); ok && h.Version == 0 {
			h.Version = Version
		}
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("got %+v, %v; want %+v", again, err, m)
		}
	})
}

// No bytes from the wire make the reader panic or take more than it was given.
func FuzzReader(f *testing.F) {
	var all []byte
	for _, m := range examples() {
		b, err := Append(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		all = append(all, b...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := NewReader(bytes.NewReader(wire))
		for {
			frame, err := r.Next()
			if err != nil {
				return
			}
			if len(frame.Payload) > len(wire) {
				t.Fatalf("payload of %d bytes from %d", len(frame.Payload), len(wire))
			}
			_, _ = Decode(frame)
		}
	})
}

// A frame that is moved is the frame that would have been made at that place.
func TestMove(t *testing.T) {
	at := func(seq log.Seq) []byte {
		var b []byte
		for _, id := range []string{"a", "bb", ""} {
			var err error
			if b, err = Append(b, &Object{At: seq, Scope: log.VNetScope(7), Kind: log.KindNIC, ID: id, Seq: 3, Bytes: []byte{1, 2}}); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	var got []byte
	for rest := at(42); len(rest) > 0; {
		var err error
		if got, rest, err = Move(got, rest, 50); err != nil {
			t.Fatal(err)
		}
	}
	if want := at(50); !bytes.Equal(got, want) {
		t.Errorf("moved\n got %x\nwant %x", got, want)
	}
	for _, bad := range [][]byte{{1}, at(1)[:30]} {
		if _, _, err := Move(nil, bad, 1); !errors.Is(err, ErrFrame) {
			t.Errorf("%d bytes: got %v, want ErrFrame", len(bad), err)
		}
	}
}

// TestEarlierVersionsSkipTheList: to a server of an earlier version, a watermark with a list
// is the same without it: it reads the fields that it knows, an empty drift, and skips the
// rest.
func TestEarlierVersionsSkipTheList(t *testing.T) {
	with := *examples()["watermark_waits"].(*Watermark)
	b, err := Append(nil, &with)
	if err != nil {
		t.Fatal(err)
	}
	with.Reached, with.List, with.Listed, with.Waits = 0, 0, false, nil
	known, err := Append(nil, &with)
	if err != nil {
		t.Fatal(err)
	}
	known = append(known[headerSize:], 0, 0) // and the length of the drift
	if !bytes.HasPrefix(b[headerSize:], known) {
		t.Errorf("with the list\n got %x\nwant %x and more", b[headerSize:], known)
	}
}
