// Package coverage says which interesting states histories came to, and how often: a search
// that never reaches a state cannot find what breaks in it. It owns the names of the states, and
// the table of a run, which is merged from what several processes counted. What a state is, is
// counted where it is seen: by package world while a history runs, and from its log by Count.
//
// Concurrency: a Table is used by one goroutine at a time.
package coverage

import (
	"fmt"
	"slices"
	"strings"
)

// State is something that can happen in a history.
type State struct {
	Name string // as world and Count count it
	What string // for people
	Goal bool   // a night in which it never occurs fails
}

// Enough is how many histories a run needs before a goal that it missed is a failure: a state
// that one history in a hundred comes to is missed by a thousand with a probability of 0.00004.
const Enough = 1000

// Table is what a run of histories came to.
type Table struct {
	Histories int            `json:"histories"`
	Times     map[string]int `json:"times"` // how often a state occurred
	In        map[string]int `json:"in"`    // in how many histories it did
}

// Add counts one history. Names that no state has are kept too, and shown.
func (t *Table) Add(counts map[string]int) {
	t.init()
	t.Histories++
	for name, n := range counts {
		if n > 0 {
			t.Times[name] += n
			t.In[name]++
		}
	}
}

// Merge adds another table's counts.
func (t *Table) Merge(other Table) {
	t.init()
	t.Histories += other.Histories
	for name, n := range other.Times {
		t.Times[name] += n
	}
	for name, n := range other.In {
		t.In[name] += n
	}
}

func (t *Table) init() {
	if t.Times == nil {
		t.Times, t.In = map[string]int{}, map[string]int{}
	}
}

// Covered returns how many of the states occurred.
func (t *Table) Covered() int {
	n := 0
	for _, s := range States {
		if t.In[s.Name] > 0 {
			n++
		}
	}
	return n
}

// Missing returns the goals that never occurred. A run of less than Enough histories misses none.
func (t *Table) Missing() (missing []State) {
	if t.Histories < Enough {
		return nil
	}
	for _, s := range States {
		if s.Goal && t.In[s.Name] == 0 {
			missing = append(missing, s)
		}
	}
	return missing
}

// Others returns the names that were counted and are of no state: how much was done, by which a
// reader sees that a run did something.
func (t *Table) Others() (others []string) {
	for name := range t.In {
		if !slices.ContainsFunc(States, func(s State) bool { return s.Name == name }) {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	return others
}

// String is the table for people: for each state how often it occurred, the mean of a history,
// and in how many histories in a hundred it did.
func (t *Table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-22s %9s %9s %7s   of %d histories\n", "state", "times", "each", "in", t.Histories)
	for _, s := range States {
		t.line(&b, s.Name, s.What, s.Goal)
	}
	for _, name := range t.Others() {
		t.line(&b, name, "", false)
	}
	return b.String()
}

func (t *Table) line(b *strings.Builder, name, what string, goal bool) {
	n := max(t.Histories, 1)
	mark := " "
	if goal && t.In[name] == 0 {
		mark = "!"
	}
	fmt.Fprintf(b, "%-22s %9d %9.2f %6.1f%% %s %s\n", name, t.Times[name], float64(t.Times[name])/float64(n), 100*float64(t.In[name])/float64(n), mark, what)
}
