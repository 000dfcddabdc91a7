package rules

import (
	"fmt"
	"strings"
	"testing"

	"rutter/log"
	"rutter/log/changetest"
	"rutter/projections/internal/worldtest"
)

// TestLimits: each limit of an operation and of an object holds at its value and
// refuses one more, by its name; the first feature version knows none of them.
func TestLimits(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("x", n) }
	many := func(n int) []string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("f%04d", i)
		}
		return names
	}
	cases := []struct {
		limit string
		most  int
		op    func(n int) log.Op
	}{
		{"id_bytes", log.MaxIDBytes, func(n int) log.Op { return log.Op{Action: log.Delete, Kind: log.KindNICTag, ID: long(n)} }},
		{"id_bytes", log.MaxIDBytes, func(n int) log.Op { return log.Op{Action: log.Delete, Kind: 200, ID: long(n)} }},
		{"set_names", log.MaxSetNames, func(n int) log.Op {
			return log.Op{Action: log.Create, Kind: log.KindNICTag, Set: many(n), Object: &log.NICTag{Name: "t"}}
		}},
		{"options", log.MaxOptions, func(n int) log.Op {
			return log.Op{Action: log.Create, Kind: log.KindNICTag, Options: make([]log.Option, n), Object: &log.NICTag{Name: "t"}}
		}},
		{"list_elements", log.MaxListElements, func(n int) log.Op {
			return log.Op{Action: log.Create, Kind: log.KindGrant, Object: &log.Grant{Subject: "reader:x", OwnerUUIDs: make([]log.UUID, n)}}
		}},
		{"unknown_bytes", log.MaxUnknownBytes, func(n int) log.Op {
			return log.Op{Action: log.Create, Kind: log.KindGrant, Object: withUnknown(t, &log.Grant{Subject: "reader:x"}, n)}
		}},
		{"object_bytes", log.MaxObjectBytes, func(n int) log.Op {
			o := &log.Server{}
			o.Comments = long(n - log.Measure(o, log.FeatureFirst).Bytes)
			return log.Op{Action: log.Create, Kind: log.KindServer, Object: o}
		}},
	}
	for _, c := range cases {
		for n, over := range map[int]bool{c.most: false, c.most + 1: true} {
			for _, feature := range []uint32{log.FeatureFirst, log.FeatureContained} {
				w := worldtest.New(t, Decide)
				w.State.SetFeature(feature)
				r := w.Try(w.Change(c.op(n))).Refusal
				if got := r != nil && strings.Contains(r.Error(), "over the limit "+c.limit); got != (over && feature == log.FeatureContained) {
					t.Errorf("version %d, %s of %d: %.300v", feature, c.limit, n, r)
				}
			}
		}
	}
}

// Programs of feature version 2 have no late fields in their measure: below version 3 a
// refusal has their numbers, and late fields count as unknown ones.
func TestSizesOfBefore(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", log.MaxObjectBytes)
	for _, c := range []struct {
		o    log.Object
		want string // what a program of version 2 says
	}{
		{&log.Network{Name: long}, "393366 is over the limit object_bytes"},
		{&log.Token{Hash: long}, "393295 is over the limit object_bytes"},
		{&log.Revocation{Subject: long}, "393264 is over the limit object_bytes"},
		{&log.Certificate{Serial: long}, "393265 is over the limit object_bytes"},
		{&log.VMM{State: long}, "393304 is over the limit object_bytes"},
		{&log.Server{Hostname: long}, "393385 is over the limit object_bytes"},
		{&log.NIC{State: long}, "393375 is over the limit object_bytes"},
		{&log.Server{Hostname: "n", UnderlayPaths: []string{long[:log.MaxUnknownBytes-6]}}, ""},
		{&log.Server{Hostname: "n", UnderlayPaths: []string{long[:log.MaxUnknownBytes-5]}}, "16385 is over the limit unknown_bytes"},
		{&log.NIC{VXLANPort: 4790, UnderlayMTU: 1500}, ""},
		{&log.Network{Name: "n", SelfProvision: long[:log.MaxUnknownBytes-3]}, ""},
		{&log.Network{Name: "n", SelfProvision: long[:log.MaxUnknownBytes-2]}, "16385 is over the limit unknown_bytes"},
		{&log.Revocation{Subject: "operator:a", ByOrder: true, Good: make([]string, log.MaxListElements+1)}, ""},
	} {
		w := worldtest.New(t, Decide)
		w.State.SetFeature(log.FeatureContained)
		r := w.Try(w.Change(log.Op{Action: log.Create, Kind: c.o.Kind(), Object: c.o})).Refusal
		got := ""
		if r != nil && strings.Contains(r.Error(), "over the limit") {
			got = r.Error()
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %.300q, want %q", c.o.Kind(), got, c.want)
		}
	}
}

// withUnknown returns o with unknown fields of n bytes in all.
func withUnknown(t *testing.T, o log.Object, n int) log.Object {
	t.Helper()
	b, err := log.NewEncoder().Object(o)
	if err != nil {
		t.Fatal(err)
	}
	fields, rest := int(b[1]&0x0f), b[2:]
	if b[1] == 0xdc { // array 16
		fields, rest = int(b[2])<<8|int(b[3]), b[4:]
	}
	fields++
	with := append([]byte{b[0], 0xdc, byte(fields >> 8), byte(fields)}, rest...)
	with = append(with, 0xc6, byte((n-5)>>24), byte((n-5)>>16), byte((n-5)>>8), byte(n-5)) // bin 32
	o, err = log.DecodeObject(o.Kind(), o.ID(), append(with, make([]byte, n-5)...))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestResultLimit: a change whose ids no result has room for is refused.
func TestResultLimit(t *testing.T) {
	t.Parallel()
	w := worldtest.Settled(t, Decide)
	ops := make([]log.Op, log.MaxOps)
	for i := range ops {
		ops[i] = changetest.Op(t, fmt.Sprintf(`create ip {"network_uuid": "#31#", "ip": "10.0.%d.%d", "reserved": true}`, i/256, i%256))
	}
	w.State.SetFeature(log.FeatureContained)
	wide := changetest.Op(t, `create network {"uuid": "#33#", "name": "six", "nic_tag": "external", "vlan_id": 9, "subnet": "fd00:1234:5678:9abc::/64"}`)
	if r := w.Try(w.Change(wide)).Refusal; r != nil {
		t.Fatal(r)
	}
	for i := range ops {
		ops[i] = changetest.Op(t, fmt.Sprintf(`create ip {"network_uuid": "#33#", "ip": "fd00:1234:5678:9abc:1111:2222:3333:%x", "reserved": true}`, i+0x1000))
	}
	if r := w.Try(w.Change(ops...)).Refusal; r == nil || !strings.Contains(r.Error(), "over the limit result_bytes") {
		t.Errorf("1,024 long ids: %.300v", r)
	}
	if r := w.Try(w.Change(ops[:800]...)).Refusal; r != nil {
		t.Errorf("800 of them: %v", r)
	}
}

// TestQuotesAreCut: no message has more of what was sent than may be quoted, and
// nothing of it that is no plain text, whatever part of an operation it is in.
func TestQuotesAreCut(t *testing.T) {
	t.Parallel()
	w := worldtest.Settled(t, Decide)
	w.State.SetFeature(log.FeatureContained)
	long := strings.Repeat("\x7f\x00ü\"", 40)
	texts := []log.Object{
		&log.NICTag{Name: long}, &log.Network{NICTag: long, Routes: log.Routes{{Dst: long, Gateway: long}}}, &log.Server{Status: long, TransitionalStatus: long, ReservationRatio: long},
		&log.NIC{BelongsToType: long, State: long, NICTag: long, NICTagsProvided: []string{long}}, &log.VM{State: long, Zonename: long}, &log.VMM{State: long},
		&log.Migration{SourceState: long}, &log.Task{Task: long, Status: long, Via: long}, &log.Ticket{Status: long, Scope: long},
		&log.Setting{Name: long}, &log.Setting{Name: SettingNetworkImmutable, Value: long}, &log.Grant{Subject: long}, &log.Grant{Subject: "foreign:10.0.0.1", Read: []string{long}},
		&log.Revocation{Subject: long}, &log.Authority{Name: long}, &log.Certificate{Authority: long}, &log.Aggregation{Name: long, LACPMode: long}, &log.IP{BelongsToType: long},
		&log.NetworkPool{Name: long, Family: long}, &log.FabricVLAN{Name: long}, &log.Router{}, &log.Token{Hash: long},
	}
	for _, o := range texts {
		for _, by := range []log.Author{{Role: log.RoleTrusted}, {Role: log.RoleCN, CN: changetest.UUID(11)}} {
			for _, op := range []log.Op{
				{Action: log.Create, Kind: o.Kind(), Object: o, Set: log.FieldNames(o.Kind()), Options: []log.Option{log.Option(long)}},
				{Action: log.Create, Kind: o.Kind(), Object: o, Set: append(log.FieldNames(o.Kind()), long)},
				{Action: log.Update, Kind: o.Kind(), ID: long[:100], Object: o, Set: []string{long}},
				{Action: log.Delete, Kind: o.Kind(), ID: long[:100]},
				{Action: log.Create, Kind: o.Kind(), ID: long[:100], Object: o},
				{Action: log.Update, Kind: log.KindServer, ID: changetest.UUID(11).String(), Object: &log.Server{}, Set: []string{long}},
			} {
				c := w.Change(op)
				c.By = by
				_, result := Decide(w.State, c)
				if result.Refusal != nil {
					quotesLittle(t, result.Refusal)
				}
			}
		}
	}
}

func quotesLittle(t *testing.T, r *log.Refusal) {
	t.Helper()
	all := []string{r.Message}
	for _, e := range r.Errors {
		all = append(append(all, e.Field, e.Message, e.Remedy, e.Type, e.ID), e.Invalid...)
	}
	for _, text := range all {
		if strings.ContainsAny(text, "\x7f\x00ü") || strings.Count(text, `\x7f`) > 3*log.MaxQuoteBytes/5 {
			t.Errorf("%d bytes: %.400q", len(text), text)
		}
	}
}
