package planprint

import (
	"fmt"

	"rutter/cmd/rutter/term"
)

// Receipt says which entries were written, in the order of the log, and by which command
// they are taken back; again adds to the command how the servers are reached. Entries of
// others may be between two ranges.
func Receipt(written []term.Seqs, again func(command string) string) string {
	if len(written) == 0 {
		return "nothing was written"
	}
	first, last, entries := written[0].First, written[len(written)-1].Last, 0
	for _, w := range written {
		entries += int(w.Last-w.First) + 1
	}
	what := fmt.Sprintf("#%d to #%d", first, last)
	switch {
	case entries == 1:
		what = fmt.Sprintf("#%d", first)
	case entries != int(last-first)+1:
		what = fmt.Sprintf("%d entries from %s, with entries of others between", entries, what)
	}
	return fmt.Sprintf("written as %s; to take it back: %s", what, again(term.TakeBack(written)))
}
