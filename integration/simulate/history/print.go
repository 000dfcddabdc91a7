package history

import (
	"fmt"
	"strings"
	"time"
)

// String says in words what happens, a line for each fault.
func (h History) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d servers, %d agents, %d clients, %v", h.Seed, h.Servers, h.Agents, h.Clients, h.Duration)
	if h.WAL {
		b.WriteString(", raft-wal")
	}
	if h.TLS {
		b.WriteString(", TLS")
	}
	if h.Busy {
		b.WriteString(", busy")
	}
	if h.Window > 0 {
		fmt.Fprintf(&b, ", %d change ids are remembered", h.Window)
	}
	if h.VMs > 0 {
		fmt.Fprintf(&b, ", %d VMs more on cn1", h.VMs)
	}
	if h.Replicas > 0 {
		fmt.Fprintf(&b, ", %d replicas", h.Replicas)
	}
	if len(h.Faults) == 0 {
		b.WriteString(", no faults")
	}
	for _, f := range h.Faults {
		fmt.Fprintf(&b, "\n%10s  %s", stamp(f.At), f.words())
	}
	return b.String()
}

// String is one fault on one line.
func (f Fault) String() string { return fmt.Sprintf("at %s: %s", f.At, f.words()) }

// stamp is a time with milliseconds, so that the times of a list stand below one another.
func stamp(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }

func (f Fault) words() string {
	var b strings.Builder
	b.WriteString(string(f.Kind))
	if f.On != "" {
		b.WriteString(" on " + f.On)
	}
	if f.To != "" {
		b.WriteString(" to " + f.To)
	}
	if form := forms[f.Kind]; form.what != "" {
		fmt.Fprintf(&b, ", %s %d", form.what, f.N)
	} else if f.N != 0 {
		fmt.Fprintf(&b, ", n %d", f.N)
	}
	if f.For != 0 {
		fmt.Fprintf(&b, ", for %v", f.For)
	}
	return b.String()
}
