package report

import (
	"bytes"
	"encoding/json"
	"testing"

	"rutter/log"
)

// FuzzReport: what decodes and passes the check is the same after another round.
func FuzzReport(f *testing.F) {
	good, err := json.Marshal(Report{Incarnation: 1, Counter: 1, Look: []log.MAC{{2}}, Changes: []Change{{log.Change{
		ID: log.UUID{1}, Ops: []log.Op{{Action: log.Delete, Kind: log.KindNIC, ID: "02:00:00:00:00:00", IfMatch: 3}},
	}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"incarnation":1,"changes":["AA=="]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var r, again Report
		if json.Unmarshal(text, &r) != nil || r.Check() != nil {
			return
		}
		first, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(first, &again); err != nil {
			t.Fatal(err)
		}
		if second, err := json.Marshal(again); err != nil || !bytes.Equal(first, second) {
			t.Errorf("got %s, then %s (%v)", first, second, err)
		}
	})
}
