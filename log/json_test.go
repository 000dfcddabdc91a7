package log

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

// plainLine has no methods, so that encoding/json encodes its fields.
type plainLine lineJSON

// What is written in less time is byte for byte what encoding/json writes: of any object,
// and of entries with old values of all sorts.
func TestJSONIsThatOfTheLibrary(t *testing.T) {
	for _, kind := range Kinds() {
		rapid.Check(t, func(t *rapid.T) {
			o := drawObject(t, kind)
			want, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := AppendObjectJSON(nil, o); err != nil || string(got) != string(want) {
				t.Fatalf("%s: %v\n got %s\nwant %s", kind, err, got, want)
			}
			event := &Event{Kind: kind, Action: Update, ID: o.ID(), Object: o, Revision: 7, Time: 1 << 60, Actor: rapid.String().Draw(t, "actor"), Changed: Diff(drawObject(t, kind), o)}
			f, err := event.form()
			if err != nil {
				t.Fatal(err)
			}
			line := Line{Seq: 1 << 63, Event: event}
			if want, err = json.Marshal(plainLine{line.Seq, f, line.Chain.String()}); err != nil {
				t.Fatal(err)
			}
			if got, err := line.AppendJSON(nil); err != nil || string(got) != string(want) {
				t.Fatalf("%s: %v\n got %s\nwant %s", kind, err, got, want)
			}
		})
	}
	for name, event := range exampleEvents() {
		f, err := event.form()
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(event); err != nil || string(got) != string(want) {
			t.Errorf("%s: %v\n got %s\nwant %s", name, err, got, want)
		}
	}
}

func BenchmarkLineJSON(b *testing.B) {
	line := Line{Seq: 7, Event: exampleEvents()["nic"]}
	if line.Event == nil {
		b.Skip("no example of a NIC")
	}
	var text []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if text, err = line.AppendJSON(text[:0]); err != nil {
			b.Fatal(err)
		}
	}
}
