package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"rutter/log"
)

// The checks find what they are there for: each history has one lie in it, or
// none.
func TestChecks(t *testing.T) {
	const ms = time.Millisecond
	change := func(n byte) log.UUID { return log.UUID{n} }
	at := func(o op, call, ret time.Duration) op {
		o.call, o.ret = call*ms, ret*ms
		return o
	}
	write := func(value string, seq log.Seq) op {
		return op{action: actWrite, value: value, seq: seq, change: change(byte(seq))}
	}
	read := func(value string, revision uint64, seq log.Seq) op {
		return op{action: actRead, value: value, revision: revision, seq: seq}
	}
	swap := func(value string, revision uint64, o outcome) op {
		return op{action: actSwap, value: value, revision: revision, outcome: o}
	}
	unsure := func(o op) op {
		o.outcome = unknown
		return o
	}
	made := entry{change: change(1), id: "x", revision: 1, value: first, time: 1}
	entries := func(values ...string) []entry {
		list := []entry{made}
		for i, v := range values {
			list = append(list, entry{change: change(byte(i + 2)), id: "x", revision: uint64(i + 2), value: v, time: log.Time(i + 2)})
		}
		return list
	}
	back := entries("a", "b")
	back[2].time = 1
	tests := []struct {
		name string
		ops  []op
		log  []entry
		want string // in a problem; "" for none
	}{
		{"well", []op{at(write("a", 2), 0, 1), at(read("a", 2, 2), 2, 3)}, entries("a"), ""},
		{"side by side", []op{at(write("a", 3), 0, 9), at(write("b", 2), 0, 9), at(read("b", 2, 2), 1, 2)}, entries("b", "a"), ""},
		{"stale read", []op{at(write("a", 2), 0, 1), at(read(first, 1, 1), 2, 3)}, entries("a"), "no order explains"},
		{"stale read, by its seq", []op{at(write("a", 2), 0, 1), at(read(first, 1, 1), 2, 3)}, entries("a"), "stale: seq 2"},
		{"a glimpse may be old", []op{at(write("a", 2), 0, 1), at(op{action: actGlimpse, value: first, revision: 1, seq: 1}, 2, 3)}, entries("a"), ""},
		{"a glimpse must have been true", []op{at(write("a", 2), 0, 1), at(op{action: actGlimpse, value: first, revision: 1, seq: 2}, 2, 3)}, entries("a"), "the state was"},
		{"lost", []op{at(write("a", 2), 0, 1)}, entries(), "lost:"},
		{"another's place", []op{at(write("a", 2), 0, 1)}, entries("b", "a"), "at seq 3"},
		{"twice", []op{at(write("a", 2), 0, 1)}, append(entries("a"), entries("a")[1]), "and again at 3"},
		{"order", []op{at(write("a", 3), 0, 1), at(write("b", 2), 2, 3)}, entries("b", "a"), "told before the call"},
		{"time goes back", nil, back, "time goes back"},
		{"late effect", []op{at(unsure(write("a", 0)), 0, 1), at(read(first, 1, 1), 2, 3), at(read("a", 2, 2), 4, 5)}, entries("a"), ""},
		{"no effect", []op{at(unsure(write("a", 0)), 0, 1), at(read(first, 1, 1), 2, 3)}, entries(), ""},
		{"effect and back", []op{at(unsure(write("a", 0)), 0, 1), at(read("a", 2, 2), 2, 3), at(read(first, 1, 1), 4, 5)}, entries("a"), "no order explains"},
		{"swap", []op{at(swap("a", 1, done), 0, 1), at(swap("b", 1, refused), 2, 3)}, entries("a"), ""},
		{"both swaps", []op{at(swap("a", 1, done), 0, 9), at(swap("b", 1, done), 0, 9)}, entries("a", "b"), "no order explains"},
		{"refused without cause", []op{at(swap("a", 1, refused), 0, 1)}, entries(), "no order explains"},
		{"refused and written", []op{at(swap("a", 1, refused), 0, 1)}, entries("a"), "refused, and at seq 2"},
		{"from the future", []op{at(read("a", 2, 2), 0, 1)}, entries(), "beyond the log's end"},
	}
	for _, test := range tests {
		found := append(checkRegisters(test.ops), checkLog([]string{"x"}, test.ops, test.log)...)
		if text := fmt.Sprint(found); test.want == "" && found != nil || !strings.Contains(text, test.want) {
			t.Errorf("%s: found %q, want %q", test.name, found, test.want)
		}
	}
}

// A schedule is the same each time, and consecutive seeds begin with all faults.
func TestSchedule(t *testing.T) {
	begins := make(map[fault]bool)
	for seed := range uint64(faults) {
		s := newSchedule(seed)
		if again := newSchedule(seed); again.String() != s.String() {
			t.Errorf("seed %d: %v, then %v", seed, s, again)
		}
		for _, step := range s.steps {
			begins[step.fault] = true
		}
	}
	if len(begins) != int(faults) {
		t.Errorf("%d of %d faults in %d schedules", len(begins), faults, faults)
	}
}
