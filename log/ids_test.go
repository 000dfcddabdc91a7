package log

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Print and parse are inverses, for each type that has a text form.
func TestTextForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := uuids().Draw(t, "uuid")
		inverse(t, u, UUID.String, ParseUUID)
		inverse(t, MAC(u[:6]), MAC.String, ParseMAC)
		inverse(t, ChainPrefix(u[:8]), ChainPrefix.String, ParseChainPrefix)
		seq := Seq(rapid.Uint64().Draw(t, "seq"))
		inverse(t, seq, Seq.String, ParseSeq)
		inverse(t, Cursor{u, seq, ChainPrefix(u[:8])}, Cursor.String, ParseCursor)
		for _, s := range []Scope{AllScope(), CNScope(u), NetworkScope(u), VNetScope(uint32(seq & MaxVNet))} {
			inverse(t, s, Scope.String, ParseScope)
			b, _ := s.AppendBinary(nil)
			var back Scope
			if err := back.UnmarshalBinary(b); err != nil || back != s {
				t.Fatalf("scope %s: binary gives %s, %v", s, back, err)
			}
		}
	})
	for k := Kind(0); k < 30; k++ {
		inverse(t, k, Kind.String, ParseKind)
	}
}

type fataler interface{ Fatalf(string, ...any) }

func inverse[T comparable](t fataler, v T, print func(T) string, parse func(string) (T, error)) {
	if back, err := parse(print(v)); err != nil || back != v {
		t.Fatalf("parse(%q) = %v, %v; want %v", print(v), back, err, v)
	}
}

func TestParseRefuses(t *testing.T) {
	const uuid = "564d69b1-a178-3fbe-b36f-3f2b7fd7ed31"
	for what, err := range map[string]error{
		"uuid short":          second(ParseUUID(uuid[1:])),
		"uuid braces":         second(ParseUUID("{" + uuid + "}")),
		"uuid not hex":        second(ParseUUID("x" + uuid[1:])),
		"mac short":           second(ParseMAC("90:b8:d0")),
		"mac mixed":           second(ParseMAC("90:b8-d0:01:02:03")),
		"mac not hex":         second(ParseMAC("zz:b8:d0:01:02:03")),
		"seq sign":            second(ParseSeq("+1")),
		"seq leading zero":    second(ParseSeq("01")),
		"seq large":           second(ParseSeq("18446744073709551616")),
		"cursor parts":        second(ParseCursor(uuid + ".1")),
		"cursor uuid":         second(ParseCursor("x.1.0000000000000000")),
		"cursor seq":          second(ParseCursor(uuid + ".one.0000000000000000")),
		"cursor chain":        second(ParseCursor(uuid + ".1.00")),
		"cursor chain upper":  second(ParseCursor(uuid + ".1.00000000000000AA")),
		"cursor upper":        second(ParseCursor(strings.ToUpper(uuid) + ".1.0000000000000000")),
		"scope word":          second(ParseScope("everything")),
		"scope vnet large":    second(ParseScope("vnet:16777216")),
		"scope vnet sign":     second(ParseScope("vnet:+1")),
		"scope cn":            second(ParseScope("cn:1")),
		"kind":                second(ParseKind("nics")),
		"kind number":         second(ParseKind("kind(3)")),
		"action":              second(ParseAction("remove")),
		"time":                second(ParseTime("yesterday")),
		"scope bytes":         new(Scope).UnmarshalBinary([]byte{byte(ScopeCN), 1}),
		"scope of no bytes":   new(Scope).UnmarshalBinary(nil),
		"scope type in bytes": new(Scope).UnmarshalBinary([]byte{99}),
	} {
		if err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestMACForms(t *testing.T) {
	want := mustMAC("90:b8:d0:01:02:0f")
	for _, text := range []string{"90b8d001020f", "90-b8-d0-01-02-0f", "90:B8:D0:01:02:0F"} {
		if got, err := ParseMAC(text); err != nil || got != want {
			t.Errorf("ParseMAC(%q) = %s, %v", text, got, err)
		}
	}
	if want.IsUnicast() != true || mustMAC("01:00:5e:00:00:01").IsUnicast() || (MAC{}).IsUnicast() {
		t.Error("IsUnicast is wrong")
	}
}

func TestUUIDTime(t *testing.T) {
	if ms, ok := mustUUID("0193508e-7b2a-7c3d-8e4f-a1b2c3d4e5f6").UnixMilli(); !ok || ms != 0x0193508e7b2a {
		t.Errorf("got %x, %v", ms, ok)
	}
	if _, ok := mustUUID("0193508e-7b2a-4c3d-8e4f-a1b2c3d4e5f6").UnixMilli(); ok {
		t.Error("a version 4 UUID has no time")
	}
}

func TestTime(t *testing.T) {
	at, err := ParseTime("2026-11-21T09:00:00.123456789Z")
	if err != nil || at.String() != "2026-11-21T09:00:00.123Z" {
		t.Errorf("got %s, %v", at, err)
	}
	if zero, err := ParseTime(""); err != nil || zero != 0 || zero.String() != "" {
		t.Errorf("zero: %q, %v", zero, err)
	}
}

func TestParseObjectRefuses(t *testing.T) {
	for _, test := range []struct{ name, body, field, code, message string }{
		{"unknown field", `{"mtuu": 1500}`, "mtuu", ElementUnknown, `network has no field "mtuu"`},
		{"number for text", `{"name": 5}`, "name", ElementInvalid, "got a JSON number"},
		{"text for number", `{"mtu": "1500"}`, "mtu", ElementInvalid, "got a JSON string"},
		{"fraction", `{"mtu": 1.5}`, "mtu", ElementInvalid, "got a JSON number 1.5"},
		{"negative", `{"vlan_id": -1}`, "vlan_id", ElementInvalid, "got a JSON number -1"},
		{"uuid", `{"uuid": "1"}`, "uuid", ElementInvalid, `uuid "1": want 36 characters, as in 564d69b1-a178-3fbe-b36f-3f2b7fd7ed31`},
		{"address", `{"gateway": "10.0.0"}`, "gateway", ElementInvalid, `ParseAddr("10.0.0"): IPv4 address too short`},
		{"subnet", `{"subnet": "10.0.0.0"}`, "subnet", ElementInvalid, `netip.ParsePrefix("10.0.0.0"): no '/'`},
		{"list", `{"resolvers": "8.8.8.8"}`, "resolvers", ElementInvalid, "got a JSON string"},
		{"routes", `{"routes": []}`, "routes", ElementInvalid, "got a JSON array"},
		{"array", `[]`, "body", ElementInvalid, ""},
		{"two objects", `{} {}`, "body", ElementInvalid, "text after the object"},
		{"cut short", `{"name": "x"`, "body", ElementInvalid, "unexpected EOF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := ParseObject(KindNetwork, []byte(test.body))
			var refusal *Refusal
			if !errors.As(err, &refusal) || len(refusal.Errors) != 1 {
				t.Fatalf("got %v, want one field refused", err)
			}
			got := refusal.Errors[0]
			if got.Field != test.field || got.Code != test.code || got.Remedy == "" || (test.message != "" && got.Message != test.message) {
				t.Errorf("got %+v", got)
			}
		})
	}
	if _, _, err := ParseObject(Kind(99), []byte(`{}`)); err == nil {
		t.Error("kind 99 was accepted")
	}
}

func TestParseObjectNamesWhatWasSet(t *testing.T) {
	o, names, err := ParseObject(KindNetwork, []byte(`{"routes": {"10.9.0.0/16": "10.0.0.2"}, "gateway": null, "mtu": 1400}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(names, " "); got != "gateway mtu routes" {
		t.Errorf("names: %s", got)
	}
	if n := o.(*Network); n.MTU != 1400 || len(n.Routes) != 1 || n.Gateway.IsValid() {
		t.Errorf("object: %+v", n)
	}
	if text, err := json.Marshal(o.(*Network).Routes); err != nil || string(text) != `{"10.9.0.0/16":"10.0.0.2"}` {
		t.Errorf("routes: %s, %v", text, err)
	}
}
