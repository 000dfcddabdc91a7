package planprint_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"rutter/cmd/rutter/planprint"
	"rutter/log"
	"rutter/projections/desired"
	"rutter/projections/foresee"
)

var update = flag.Bool("update", false, "write the golden files anew")

// outcome has each sort of line, with names that a tenant chose to look like other lines.
func outcome() *foresee.Outcome {
	id := func(n byte) log.UUID { return log.UUID{6: 0x40, 8: 0x80, 15: n} }
	const hostile = "web\x1b[31m\n- network forged"
	return &foresee.Outcome{
		Head: 41,
		Changes: []foresee.Change{
			{Result: log.Result{First: 42, Last: 42, Events: 1}},
			{
				Result: log.Result{Refusal: &log.Refusal{Code: log.CodeInUse, Message: "network is in use"}},
				Refused: []foresee.Refused{
					{Op: 3, Action: log.Delete, Kind: log.KindNetwork, ID: id(1).String(), Name: hostile, Refusal: &log.Refusal{Code: log.CodeInUse, Message: "network is in use", Errors: []log.FieldError{{Field: "uuid", Message: "In use by nic"}}}},
					{Op: -1, Refusal: &log.Refusal{Code: log.CodeInvalidParameters, Message: "Invalid parameters"}},
				},
			},
		},
		Objects: []foresee.Object{
			{Action: foresee.Create, Kind: log.KindNetwork, ID: id(1).String(), Name: hostile, Fields: []foresee.Field{
				{Path: "uuid", New: id(1).String()},
				{Path: "name", New: hostile},
				{Path: "mtu", New: uint64(1400)},
				{Path: "owner_uuids", New: []string{id(2).String()}, Names: map[string]string{id(2).String(): "owner"}},
			}},
			{Action: foresee.Update, Kind: log.KindVM, ID: id(3).String(), Name: "db", Fields: []foresee.Field{
				{Path: "server_uuid", Old: nil, New: id(4).String(), Names: map[string]string{id(4).String(): "cn1"}},
				{Path: "last_modified", Old: uint64(1), New: uint64(2)},
			}},
			{Action: foresee.Delete, Kind: log.KindNIC, ID: "02:00:00:00:00:01", Name: "10.0.0.5 of db", Fields: []foresee.Field{{Path: "ip", Old: "10.0.0.5"}}},
			{Action: foresee.Replace, Kind: log.KindNICTag, ID: "external", Fields: []foresee.Field{{Path: "mtu", Old: uint64(1500), New: uint64(9000)}}},
		},
		Nodes: []foresee.Node{{CN: id(4), Hostname: "cn1", Links: []foresee.Link{
			{Action: log.Create, What: "fabric", Key: "02:00:00:00:00:02", Name: hostile, After: "vnet 10"},
			{Action: log.Update, What: "filter", Key: "02:00:00:00:00:03", Before: "from a", After: "from b"},
			{Action: log.Delete, What: "peer", Key: "10.0.0.1 on sdcvxl10"},
		}}},
		NodesLooked: 256, NodesConcerned: 1000,
		Pairs: []foresee.Pair{
			{Change: foresee.Lost, From: id(3), To: id(5), FromName: "db", ToName: hostile, Before: desired.Reachable, After: desired.Unreachable, Why: "db has no NIC", Code: "no-nic"},
			{Change: foresee.Gained, From: id(3), To: id(6), FromName: "db", Before: desired.Unreachable, After: desired.Reachable},
			{Change: foresee.Doubtful, From: id(5), To: id(6), Before: desired.Reachable, After: desired.Doubtful, Why: "the MTU differs", Code: "mtu-differs"},
		},
		PairsLooked: 4096, PairsConcerned: 37950,
	}
}

// What is printed is as the golden files have it, and no name makes a line of its own.
func TestOutcome(t *testing.T) {
	for _, format := range []string{"table", "json", "ndjson"} {
		t.Run(format, func(t *testing.T) {
			var b bytes.Buffer
			if err := planprint.Outcome(&b, format, outcome()); err != nil {
				t.Fatal(err)
			}
			name := "testdata/outcome." + format
			if *update {
				if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b.Bytes(), want) {
				t.Errorf("printed is\n%s\nwant\n%s", b.Bytes(), want)
			}
			if text := b.String(); strings.Contains(text, "\x1b") || strings.Contains(text, "\n- network forged") {
				t.Errorf("a name passes for the program's own text:\n%s", text)
			}
			if format == "ndjson" {
				for line := range strings.Lines(b.String()) {
					if !json.Valid([]byte(line)) {
						t.Errorf("no JSON: %s", line)
					}
				}
			}
		})
	}
}

func TestCounts(t *testing.T) {
	if n := planprint.Count(outcome()); n != (planprint.Counts{Create: 1, Update: 1, Delete: 1, Replace: 1, Refused: 1}) || n.String() != "1 to create, 1 to update, 1 to delete, 1 to replace, 1 refused change" {
		t.Errorf("%s", n)
	}
	if n := (planprint.Counts{}); n.String() != "nothing to do" {
		t.Errorf("%s", n)
	}
}
