package desired

import "testing"

func TestLimitsHoldOn(t *testing.T) {
	limits := Limits{Entries: 800}
	tests := []struct {
		entries int
		before  bool
		want    bool
	}{{800, false, false}, {801, false, true}, {800, true, true}, {701, true, true}, {700, true, false}, {701, false, false}}
	for _, test := range tests {
		limits.OnDemand = map[uint32]bool{7: test.before}
		if got := limits.over(7, test.entries); got != test.want {
			t.Errorf("%d entries, on demand before %v: got %v, want %v", test.entries, test.before, got, test.want)
		}
	}
	if (&Limits{}).over(7, 1<<30) {
		t.Error("no limit: got on demand")
	}
}
