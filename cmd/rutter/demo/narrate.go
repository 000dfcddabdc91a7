package demo

import (
	"fmt"
	"io"
	"slices"
	"time"

	"rutter/cmd/rutter/output"
)

// narrator prints the demo line by line, with the time since its start.
type narrator struct {
	out     io.Writer
	started time.Time
	step    string
	since   time.Time
	rows    []row
}

// row is one line of the last table.
type row struct {
	step   string
	took   time.Duration
	result string
}

func newNarrator(out io.Writer) *narrator {
	now := time.Now()
	return &narrator{out: out, started: now, since: now}
}

func (n *narrator) line(mark, format string, args ...any) {
	output.Printf(n.out, "%6.2fs %s %s\n", time.Since(n.started).Seconds(), mark, fmt.Sprintf(format, args...))
}

// begin opens a step.
func (n *narrator) begin(step string) {
	n.step, n.since = step, time.Now()
	output.Print(n.out, "\n")
	n.line("──", "%s", step)
}

// detail prints what happened within a step.
func (n *narrator) detail(format string, args ...any) { n.line("  ", format, args...) }

// result closes a step with its result, which the last table repeats.
func (n *narrator) result(format string, args ...any) {
	result := fmt.Sprintf(format, args...)
	n.rows = append(n.rows, row{n.step, time.Since(n.since), result})
	n.line("✓ ", "%s", result)
}

// table prints the last table: every step, how long it took, what came of it.
func (n *narrator) table() {
	output.Print(n.out, "\n")
	w := output.Aligned(n.out)
	output.Print(w, "STEP\tTOOK\tRESULT\n")
	for _, r := range n.rows {
		output.Printf(w, "%s\t%.2fs\t%s\n", r.step, r.took.Seconds(), r.result)
	}
	_ = w.Flush() // the terminal is gone
	output.Printf(n.out, "\nEvery step held, in %.1f s.\n", time.Since(n.started).Seconds())
}

// median of durations; 0 of none.
func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Clone(d)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}

// ms prints a duration as milliseconds with three digits or so.
func ms(d time.Duration) string {
	v := float64(d) / float64(time.Millisecond)
	switch {
	case v < 10:
		return fmt.Sprintf("%.2f ms", v)
	case v < 1000:
		return fmt.Sprintf("%.0f ms", v)
	}
	return fmt.Sprintf("%.2f s", v/1000)
}
