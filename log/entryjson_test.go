package log

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

func TestEventJSONRoundTrip(t *testing.T) {
	for name, event := range exampleEvents() {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(event)
			if err != nil {
				t.Fatal(err)
			}
			var got Event
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			again, err := json.Marshal(&got)
			if err != nil {
				t.Fatal(err)
			}
			if string(again) != string(text) {
				t.Errorf("printed again\n got %s\nwant %s", again, text)
			}
			if !reflect.DeepEqual(got.Changed, event.Changed) {
				t.Errorf("changed: got %v, want %v", got.Changed, event.Changed)
			}
			if got.Time != event.Time || got.Revision != event.Revision || got.ChangeID != event.ChangeID {
				t.Errorf("got %+v, want %+v", got, event)
			}
		})
	}
}

func TestEntryJSON(t *testing.T) {
	event := exampleEvents()["nic_tag"]
	b, err := NewEncoder().Event(event)
	if err != nil {
		t.Fatal(err)
	}
	var hash Hash
	text, err := json.Marshal(Entry{Seq: 7, Hash: hash.Next(7, b), Bytes: b})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"seq":7,"time":"2026-11-21T09:00:00.123456789Z","kind":"nic_tag","action":"create","id":"external","revision":1,` +
		`"actor":"napi","change_id":"0193508e-7b2a-7c3d-8e4f-a1b2c3d4e5f6","more":0,"scopes":["all"],` +
		`"object":{"name":"external","uuid":"0e70de36-a40b-4ac0-9429-819f5ff822bd","mtu":1500},"chain":"` + hash.Next(7, b).Prefix().String() + `"}`
	if string(text) != want {
		t.Errorf("\n got %s\nwant %s", text, want)
	}
	var line Line
	if err := json.Unmarshal(text, &line); err != nil {
		t.Fatal(err)
	}
	if line.Seq != 7 || line.Chain != hash.Next(7, b).Prefix() || !Equal(line.Event.Object, event.Object) {
		t.Errorf("read back %+v", line)
	}
	if _, err := json.Marshal(Entry{Seq: 8, Bytes: []byte{1}}); err == nil {
		t.Error("an entry whose bytes are no event was printed")
	}
}

// A server of a newer release sends fields that this program does not know: who reads its log
// goes on with the others.
func TestEventJSONOfANewerProgram(t *testing.T) {
	var e Event
	text := `{"kind":"nic_tag","action":"update","id":"external","object":{"name":"external","colour":{"red":1},"mtu":9000},"changed":[{"path":"colour","old":"blue"},{"path":"mtu","old":1500}]}`
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatal(err)
	}
	if tag := e.Object.(*NICTag); tag.Name != "external" || tag.MTU != 9000 {
		t.Errorf("got %+v", tag)
	}
	if want := []FieldChange{{"colour", "blue"}, {"mtu", uint64(1500)}}; !reflect.DeepEqual(e.Changed, want) {
		t.Errorf("changed: got %v, want %v", e.Changed, want)
	}
	if _, _, err := ParseObject(KindNICTag, []byte(`{"name":"external","colour":1}`)); err == nil {
		t.Error("a write with a field that is not known is taken")
	}
}

func TestEventJSONRefuses(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"no object":      {`[]`, "cannot unmarshal"},
		"two values":     {`{} {}`, "text after"},
		"bad kind":       {`{"kind":"cat"}`, "want one of"},
		"bad time":       {`{"kind":"nic_tag","time":"noon"}`, "RFC 3339"},
		"bad object":     {`{"kind":"nic_tag","object":{"mtu":"1500"}}`, "got a JSON string"},
		"negative old":   {`{"kind":"nic_tag","object":{},"changed":[{"path":"mtu","old":-1}]}`, "0 or more"},
		"fractional old": {`{"kind":"nic_tag","object":{},"changed":[{"path":"mtu","old":1.5}]}`, "0 or more"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := new(Event).UnmarshalJSON([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func FuzzEventJSON(f *testing.F) {
	for _, event := range exampleEvents() {
		text, err := json.Marshal(event)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var e Event
		if e.UnmarshalJSON(text) != nil {
			return
		}
		printed, err := json.Marshal(&e)
		if err != nil {
			t.Fatal(err)
		}
		var again Event
		if err := again.UnmarshalJSON(printed); err != nil {
			t.Fatalf("%s: %v", printed, err)
		}
	})
}

// An old value that is a time is RFC 3339 in JSON, and comes back with all its digits. The
// form that older programs wrote, nanoseconds since 1970, is read too.
func TestOldTimesInJSON(t *testing.T) {
	const ms = uint64(1795251600123e6)
	for _, c := range []struct {
		old  uint64
		want string
	}{
		{ms, `"2026-11-21T09:00:00.123Z"`},
		{ms + 1, `"2026-11-21T09:00:00.123000001Z"`},
		{0, `null`},
	} {
		e := &Event{
			Kind: KindVM, Action: Update, ID: UUID{1}.String(), Revision: 2, Time: Time(ms), Actor: "a",
			Object:  &VM{UUID: UUID{1}, Quota: 5, LastModified: Time(ms)},
			Changed: []FieldChange{{"quota", uint64(1795251600123000000)}, {"last_modified", c.old}},
		}
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		want := `"changed":[{"path":"quota","old":1795251600123000000},{"path":"last_modified","old":` + c.want + `}]`
		if !strings.Contains(string(text), want) {
			t.Errorf("%d: %s, want %s", c.old, text, want)
		}
		older := strings.Replace(string(text), `"old":`+c.want+`}`, `"old":`+strconv.FormatUint(c.old, 10)+`}`, 1)
		for _, form := range []string{string(text), older} {
			var back Event
			if err := json.Unmarshal([]byte(form), &back); err != nil || !reflect.DeepEqual(back.Changed, e.Changed) {
				t.Errorf("%s: read as %+v, %v", form, back.Changed, err)
			}
		}
		if c.old != ms {
			continue
		}
		wrong := strings.Replace(string(text), `"old":`+c.want+`}`, `"old":"noon"}`, 1)
		if err := json.Unmarshal([]byte(wrong), new(Event)); err == nil || !strings.Contains(err.Error(), "RFC 3339") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
