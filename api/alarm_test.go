package api

import (
	"strings"
	"testing"

	"rutter/api/backend"
)

// alarmed is a store that has something for people to see to.
type alarmed struct{ *memory }

func (a alarmed) Status() backend.Status {
	st := a.memory.Status()
	st.Alarms = []string{"s1 has little room on disk"}
	return st
}

// What readyz lists for operators is counted, from every source.
func TestAlarmsAreCounted(t *testing.T) {
	store := newMemory()
	s, err := New(Config{Store: alarmed{store}, Warnings: func() []string { return []string{"a port is open"} }})
	if err != nil {
		t.Fatal(err)
	}
	b := bedWith(t, store, s)
	if got := b.call("GET", "/readyz?verbose", "").Body.String(); !strings.Contains(got, "alarm s1 has little room on disk\n") || !strings.Contains(got, "warning a port is open\n") {
		t.Errorf("readyz says %s", got)
	}
	if got := b.call("GET", "/metrics", "").Body.String(); !strings.Contains(got, "\nrutter_warnings 2\n") {
		t.Error("rutter_warnings does not count both")
	}
}
