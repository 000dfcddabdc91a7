package line

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rutter/log"
)

var add = flag.Bool("add", false, "write golden files that are missing")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	want, err := os.ReadFile(path)
	if os.IsNotExist(err) && *add {
		want, err = got, os.WriteFile(path, got, 0o644)
	}
	if err != nil {
		t.Fatalf("%v (go test -add writes it)", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s:\n got\n%s\nwant\n%s", name, got, want)
	}
}

// example is the short life of a network and a NIC.
func example() []log.Line {
	id, _ := log.ParseUUID("5f0c2d5e-9a1b-4c3d-8e4f-a1b2c3d4e5f6")
	change, _ := log.ParseUUID("0193508e-7b2a-7c3d-8e4f-a1b2c3d4e5f6")
	at, _ := log.ParseTime("2026-11-21T09:00:00.123456789Z")
	network := &log.Network{
		UUID: id, Name: "blue", Family: "ipv4", NICTag: "external", VLANID: 4, Subnet: netip.MustParsePrefix("10.0.0.0/24"),
		Gateway: netip.MustParseAddr("10.0.0.1"), Resolvers: []netip.Addr{netip.MustParseAddr("8.8.8.8")}, MTU: 1500,
	}
	moved := log.Clone(network).(*log.Network)
	moved.Gateway, moved.Routes, moved.MTU = netip.MustParseAddr("10.0.0.254"), log.Routes{{Dst: "10.9.0.0/16", Gateway: "10.0.0.2"}}, 1400
	nic := &log.NIC{MAC: log.MAC{0x90, 0xb8, 0xd0, 0, 0, 1}, BelongsToType: "zone", OwnerUUID: id, State: "running", Created: at, Modified: at + 5e9}
	nicWas := log.Clone(nic).(*log.NIC)
	nicWas.Modified = at
	tag := &log.NICTag{Name: "external", MTU: 1500}
	events := []*log.Event{
		{Action: log.Create, Object: network, Actor: "napi", Revision: 1, Scopes: []log.Scope{log.NetworkScope(id)}},
		{Action: log.Update, Object: moved, Actor: "napi", Revision: 2, Changed: log.Diff(network, moved), Scopes: []log.Scope{log.NetworkScope(id)}},
		{Action: log.Update, Object: nic, Actor: "cn \x1b[31mred\u009b <&>", Revision: 2, Changed: log.Diff(nicWas, nic)},
		{Action: log.Update, Object: tag, Actor: "op", Revision: 3},
		{Action: log.Delete, Object: moved, Actor: "op", Revision: 3},
	}
	var lines []log.Line
	for i, e := range events {
		e.Kind, e.ID, e.Time, e.ChangeID = e.Object.Kind(), e.Object.ID(), at+log.Time(i)*1e9, change
		lines = append(lines, log.Line{Seq: log.Seq(1042 + i), Chain: log.ChainPrefix{1, 2, 3}, Event: e})
	}
	return lines
}

func printed(t *testing.T, o Options, lines []log.Line) []byte {
	t.Helper()
	p := NewPrinter(o)
	var out []byte
	for _, l := range lines {
		before := len(out)
		var err error
		if out, err = p.Append(out, l); err != nil {
			t.Fatal(err)
		}
		if out[len(out)-1] != '\n' || len(out) == before {
			t.Errorf("%s: entry %d does not end with a line", o.Format, l.Seq)
		}
	}
	return p.End(out)
}

func TestGolden(t *testing.T) {
	for _, format := range Formats() {
		golden(t, format+".golden", printed(t, Options{Format: Format(format)}, example()))
		golden(t, format+"-none.golden", printed(t, Options{Format: Format(format)}, nil))
	}
	golden(t, "colour.golden", printed(t, Options{Colour: true}, example()))
	golden(t, "colour-table.golden", printed(t, Options{Format: Table, Colour: true}, example()))
	golden(t, "values.golden", printed(t, Options{Values: true}, example()))
	names := func(field, uuid string) string {
		switch {
		case field == "owner_uuid" && uuid == example()[0].Event.ID:
			return "admin"
		case field == "uuid" && uuid == example()[0].Event.ID:
			return "x) \x1b[31mred"
		}
		return ""
	}
	nic := example()[2]
	nic.Event.Action, nic.Event.Changed = log.Create, nil
	golden(t, "names.golden", printed(t, Options{Values: true, Names: names}, append(example()[:1], nic)))
	golden(t, "made.golden", printed(t, Options{Names: names}, append(example()[:1], nic)))
}

// The line that spec/vminfod.md gives as its example.
func TestManner(t *testing.T) {
	const want = `2026-11-21T09:00:01.123Z #1043 network 5f0c2d5e-9a1b-4c3d-8e4f-a1b2c3d4e5f6 gateway changed :: "10.0.0.1" -> "10.0.0.254"  by napi` + "\n"
	if got := string(printed(t, Options{}, example()[1:2])); !strings.HasPrefix(got, want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// What JSON prints can be read back, and NDJSON has the same entries.
func TestJSONIsRead(t *testing.T) {
	var lines []log.Line
	if err := json.Unmarshal(printed(t, Options{Format: JSON}, example()), &lines); err != nil || len(lines) != len(example()) {
		t.Fatalf("%d entries, %v", len(lines), err)
	}
	n := 0
	for text := range bytes.Lines(printed(t, Options{Format: NDJSON}, example())) {
		var l log.Line
		if err := json.Unmarshal(text, &l); err != nil || l.Seq != lines[n].Seq {
			t.Errorf("line %d: seq %d, %v", n, l.Seq, err)
		}
		n++
	}
}

// Every field of every kind that is a time is known as one.
func TestTimeFields(t *testing.T) {
	for kind := range log.Kind(32) {
		o := log.NewObject(kind)
		if o == nil {
			continue
		}
		for _, f := range reflect.VisibleFields(reflect.TypeOf(o).Elem()) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Type == reflect.TypeFor[log.Time]() != slices.Contains(timeFields, name) {
				t.Errorf("%s %s: is it a time?", kind, name)
			}
		}
	}
}

// No value puts control characters on a terminal, and JSON reads each back.
func TestValuesAreSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		got := Value("alias", text)
		if i := strings.IndexFunc(got, hidden); i >= 0 {
			t.Fatalf("%q has something hidden at %d", got, i)
		}
		var back string
		if err := json.Unmarshal([]byte(got), &back); err != nil || back != strings.ToValidUTF8(text, "\ufffd") {
			t.Fatalf("%q of %q reads as %q, %v", got, text, back, err)
		}
		if i := strings.IndexFunc(safe(text), hidden); i >= 0 {
			t.Fatalf("%q has something hidden at %d", safe(text), i)
		}
	})
}

func TestBlame(t *testing.T) {
	var b Blame
	if _, ok := b.Last(); ok || b.Fields() != nil {
		t.Error("an empty blame has fields")
	}
	lines := example()
	for _, l := range []log.Line{lines[0], lines[1], lines[4]} {
		if err := b.Add(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Add(lines[2]); err == nil {
		t.Error("an event of another object was taken")
	}
	golden(t, "blame.golden", AppendBlame(nil, &b, Options{}))
	golden(t, "blame-colour.golden", AppendBlame(nil, &b, Options{Colour: true}))
	var young Blame // its creation is not kept any more
	if err := young.Add(lines[1]); err != nil {
		t.Fatal(err)
	}
	golden(t, "blame-young.golden", AppendBlame(nil, &young, Options{}))
}

// The blame of a history names, for each field, the last entry that changed it.
func TestBlameIsTheLastChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := &log.NICTag{Name: "a", MTU: 1500}
		want := map[string]log.Seq{"name": 1, "mtu": 1, "uuid": 1}
		var b Blame
		add := func(seq log.Seq, action log.Action, changed []log.FieldChange) {
			if err := b.Add(log.Line{Seq: seq, Event: &log.Event{Kind: log.KindNICTag, Action: action, ID: "a", Object: now, Changed: changed}}); err != nil {
				t.Fatal(err)
			}
		}
		add(1, log.Create, nil)
		for seq := log.Seq(2); seq < 8; seq++ {
			next := &log.NICTag{Name: "a", MTU: rapid.Uint32Range(1500, 1503).Draw(t, "mtu"), UUID: log.UUID{rapid.Byte().Draw(t, "uuid")}}
			changed := log.Diff(now, next)
			for _, c := range changed {
				want[c.Path] = seq
			}
			now = next
			add(seq, log.Update, changed)
		}
		for _, o := range b.Fields() {
			if o.Seq != want[o.Field] {
				t.Fatalf("%s is of %d, want %d", o.Field, o.Seq, want[o.Field])
			}
		}
	})
}

func FuzzYAML(f *testing.F) {
	f.Add([]byte(`{"a":[],"b":{},"c":[{"d":null}],"on":1,"scopes":["x"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || b[0] != '{' || !json.Valid(b) {
			return
		}
		out, err := appendYAML(nil, b)
		if err == nil && (len(out) == 0 || out[len(out)-1] != '\n') {
			t.Errorf("%s: %q does not end with a line", b, out)
		}
	})
}

func BenchmarkLines(b *testing.B) {
	lines, p := example(), NewPrinter(Options{})
	var out []byte
	for i := 0; b.Loop(); i++ {
		out, _ = p.Append(out[:0], lines[i%len(lines)])
	}
}
