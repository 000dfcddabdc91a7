package planprint

import (
	"fmt"
	"strings"

	"rutter/log"
)

// Receipt says which entries were written, in the order of the log, and how they are taken
// back. Entries of others may be between two ranges.
func Receipt(written []log.SeqRange) string {
	var ranges []log.SeqRange
	entries := uint64(0)
	for _, w := range written {
		entries += uint64(w.Last-w.First) + 1
		if last := len(ranges) - 1; last >= 0 && ranges[last].Last+1 == w.First {
			ranges[last].Last = w.Last
			continue
		}
		ranges = append(ranges, w)
	}
	switch {
	case len(ranges) == 0:
		return "nothing was written"
	case entries == 1:
		return fmt.Sprintf("written as #%d; to take it back: rutter log revert %d", ranges[0].First, ranges[0].First)
	case len(ranges) == 1:
		return fmt.Sprintf("written as #%d to #%d; to take it back: rutter log revert --from %d --until %d", ranges[0].First, ranges[0].Last, ranges[0].First, ranges[0].Last)
	}
	var texts []string
	for _, r := range ranges {
		texts = append(texts, fmt.Sprintf("%d-%d", r.First, r.Last))
	}
	return fmt.Sprintf("written as %d entries from #%d to #%d, with entries of others between; to take it back: rutter log revert %s", entries, ranges[0].First, ranges[len(ranges)-1].Last, strings.Join(texts, ","))
}
