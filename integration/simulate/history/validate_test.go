package history

import (
	"strings"
	"testing"
	"time"
)

// small is a valid history to spoil.
func small() History {
	return History{Seed: 1, Servers: 3, Agents: 5, Clients: 2, Duration: time.Minute}
}

// A file that was edited by hand gets an error that says where, what and what to do.
func TestValidate(t *testing.T) {
	if err := small().Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fault Fault
		says  string // "" if it is valid
	}{
		{Fault{Kind: Kill, On: "s1", For: time.Second}, ""},
		{Fault{Kind: "explode", On: "s1"}, `kind: "explode" is unknown; the kinds are cut, drift`},
		{Fault{Kind: Kill, On: "s4", For: time.Second}, "on: there is no s4, because the last is s3"},
		{Fault{Kind: Kill, On: "cn6", For: time.Second}, "on: there is no cn6, because the last is cn5"},
		{Fault{Kind: Kill, On: "c1", For: time.Second}, "on: c1 is a client; name a server or an agent"},
		{Fault{Kind: Kill, On: "s01", For: time.Second}, `on: "s01" is no name`},
		{Fault{Kind: Kill, On: "s0", For: time.Second}, `on: "s0" is no name`},
		{Fault{Kind: Kill, On: "scn1", For: time.Second}, `on: "scn1" is no name`},
		{Fault{Kind: Kill, For: time.Second}, "on: it is empty; name a server or an agent"},
		{Fault{Kind: Retain, On: "s1", N: 5}, "on: s1 is one machine, and the fault is the cluster's; take it out"},
		{Fault{Kind: Retain, N: 5}, ""},
		{Fault{Kind: Kill, On: "s1"}, "for: a fault kill must end; say after how long"},
		{Fault{Kind: Kill, On: "s1", For: -time.Second}, "for: a fault kill must end"},
		{Fault{Kind: Reset, On: "s1", For: time.Second}, "for: a fault reset is an instant; take it out"},
		{Fault{Kind: Kill, On: "s1", For: 2 * time.Minute}, "for: it ends at 2m0s, after the duration of 1m0s"},
		{Fault{Kind: Kill, On: "s1", For: 1<<63 - 1, At: 5}, "for: it ends"},
		{Fault{Kind: Kill, On: "s1", For: time.Second, At: -1}, "at: -1ns is not within"},
		{Fault{Kind: Kill, On: "s1", For: time.Second, At: time.Hour}, "at: 1h0m0s is not within"},
		{Fault{Kind: Kill, On: "s1", For: time.Second, N: 3}, "n: a fault kill has no number; take it out"},
		{Fault{Kind: Kill, On: "s1", For: time.Second, To: "s2"}, "to: a fault kill has no other end; take it out"},
		{Fault{Kind: OneWay, On: "s1", For: time.Second}, "to: a fault oneway needs the other end"},
		{Fault{Kind: OneWay, On: "s1", To: "s1", For: time.Second}, "to: s1 is on itself; name another"},
		{Fault{Kind: OneWay, On: "c2", To: "s1", For: time.Second}, ""},
		{Fault{Kind: Lossy, On: "s1", N: 91, For: time.Second}, "n: 91 is outside of 1 to 90 percent; choose a number in it"},
		{Fault{Kind: Rotate}, "kind: a fault rotate needs certificates; set tls"},
		{Fault{Kind: Restore}, "there is no backup yet; put a fault snapshot before it"},
	} {
		h := small()
		h.Faults = []Fault{{Kind: Meddle, On: "cn1", N: 9}, c.fault}
		if c.fault.At < 0 {
			h.Faults = h.Faults[1:]
		}
		err := h.Validate()
		if c.says == "" && err != nil {
			t.Errorf("%v: %v", c.fault, err)
		}
		if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%v: %v, want %q in it", c.fault, err, c.says)
		}
		if err != nil && c.fault.At >= 0 && !strings.Contains(err.Error(), "fault 2 (") {
			t.Errorf("%v: the error does not say which fault: %v", c.fault, err)
		}
	}
}

// What several faults are together is checked too.
func TestValidateTogether(t *testing.T) {
	at := func(seconds int, f Fault) Fault {
		f.At = time.Duration(seconds) * time.Second
		return f
	}
	kill := Fault{Kind: Kill, On: "s1", For: 5 * time.Second}
	backup := Fault{Kind: Snapshot, On: "s1"}
	for _, c := range []struct {
		name   string
		faults []Fault
		says   string
	}{
		{"not in order", []Fault{at(5, kill), at(1, backup)}, "it comes before fault 1; order the faults by at"},
		{"ended twice", []Fault{at(1, kill), at(7, Fault{Kind: Pause, On: "s1", For: time.Second})}, "fault 2 (at 7s: pause on s1, for 1s): fault 1 (at 1s: kill on s1, for 5s) is not over before 8s"},
		{"ended again later", []Fault{at(1, kill), at(8, Fault{Kind: Pause, On: "s1", For: time.Second})}, ""},
		{"cut while it is ended", []Fault{at(1, kill), at(2, Fault{Kind: Cut, On: "s1", For: time.Second})}, ""},
		{"ended in a restore", []Fault{at(1, backup), at(2, Fault{Kind: Restore}), at(8, kill)}, "fault 3 (at 8s: kill on s1, for 5s): fault 2 (at 2s: restore) is not over before 12s"},
		{"ended after a restore", []Fault{at(1, backup), at(2, Fault{Kind: Restore}), at(14, kill)}, ""},
		{"an agent ended in a restore", []Fault{at(1, backup), at(4, Fault{Kind: Restore}), at(5, Fault{Kind: Kill, On: "cn1", For: 1})}, ""},
		{"all cut off power", []Fault{at(1, Fault{Kind: Power, On: "s1", N: 5, For: 1}), at(1, Fault{Kind: Power, On: "s2", N: 5, For: 1}), at(1, Fault{Kind: Power, On: "s3", N: 5, For: 1})}, ""},
		{"two copies lost", []Fault{at(1, Fault{Kind: Lose, On: "s1", For: 1}), at(30, Fault{Kind: Rot, On: "s2", N: 1, For: 1})}, "the copies of 2 of 3 servers are lost, which no cluster survives; let it be on s1"},
		{"one copy lost twice", []Fault{at(1, Fault{Kind: Lose, On: "s1", For: 1}), at(30, Fault{Kind: Remove, On: "s1", For: 1})}, ""},
		{"revoked beside a lost copy", []Fault{at(1, Fault{Kind: Lose, On: "s1", For: 1}), at(10, Fault{Kind: Revoke, On: "s2", For: 1})}, "fault 2 (at 10s: revoke on s2, for 1ns): fault 1"},
		{"revoked after a lost copy", []Fault{at(1, Fault{Kind: Lose, On: "s1", For: 1}), at(20, Fault{Kind: Revoke, On: "s2", For: 1})}, ""},
		{"revoked and lost", []Fault{at(1, Fault{Kind: Lose, On: "s1", For: 1}), at(10, Fault{Kind: Revoke, On: "s1", For: 1})}, ""},
		{"agents' copies lost", []Fault{at(1, Fault{Kind: Lose, On: "cn1", For: 1}), at(1, Fault{Kind: Lose, On: "cn2", For: 1})}, ""},
		{"two clocks wrong", []Fault{at(1, Fault{Kind: Skew, On: "s1", N: 5000, For: 1}), at(30, Fault{Kind: Skew, On: "s2", N: -5000, For: 1})}, "the clocks of 2 of 3 servers are more than 1s off"},
		{"two clocks a little wrong", []Fault{at(1, Fault{Kind: Skew, On: "s1", N: 500, For: 1}), at(30, Fault{Kind: Skew, On: "s2", N: -500, For: 1})}, ""},
		{"a clock drifts far", []Fault{at(1, Fault{Kind: Skew, On: "s1", N: 5000, For: 1}), at(1, Fault{Kind: Drift, On: "s2", N: 200_000, For: 20 * time.Second})}, "the clocks of 2 of 3"},
	} {
		h := small()
		h.Faults, h.TLS = c.faults, true
		err := h.Validate()
		if (c.says == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}

func TestValidateSize(t *testing.T) {
	for says, spoil := range map[string]func(*History){
		"servers: 2 is outside of 3 to 5":          func(h *History) { h.Servers = 2 },
		"agents: 51 is outside of 1 to 50":         func(h *History) { h.Agents = 51 },
		"clients: 0 is outside of 1 to 32":         func(h *History) { h.Clients = 0 },
		"duration: 1ns is outside of 1s to 24h0m0": func(h *History) { h.Duration = 1 },
		"faults: 1001 are more than 1000":          func(h *History) { h.Faults = make([]Fault, 1001) },
	} {
		h := small()
		spoil(&h)
		if err := h.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}
