package seen

import (
	"slices"

	"rutter/log"
)

// Happened names what an event did to its object as Triton's change feed names it: create,
// delete, or the fields that changed; those that every change changes only if there are no
// others. It follows the format (spec/changefeed.md), and not the code of the feed.
func Happened(event *log.Event) (subs []string) {
	switch event.Action {
	case log.Create:
		return []string{"create"}
	case log.Delete:
		return []string{"delete"}
	}
	every := []string{"modified_timestamp", "last_modified", "last_updated"}
	var kept []string
	for _, c := range event.Changed {
		switch {
		case c.Path == log.FieldLabels: // is not Triton's
		case slices.Contains(every, c.Path):
			kept = append(kept, c.Path)
		default:
			subs = append(subs, c.Path)
		}
	}
	if len(subs) == 0 {
		subs = kept
	}
	slices.Sort(subs)
	return subs
}

// Wanted reports whether a listener that wants so much of each resource is to be told of an event.
func Wanted(event *log.Event, wants map[string][]string) bool {
	of := wants[event.Kind.String()]
	return slices.ContainsFunc(Happened(event), func(sub string) bool { return slices.Contains(of, sub) })
}
