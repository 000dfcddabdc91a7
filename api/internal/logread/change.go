package logread

import (
	"fmt"
	"slices"

	"rutter/log"
)

// ChangeBegin returns the first seq of the change that seq is of. The store has both:
// the floor is between changes. Errors: as After's.
func (t *Tail) ChangeBegin(seq log.Seq) (log.Seq, error) {
	first, floor := seq, t.store.Floor()
	for from := seq; from > floor; {
		end := from
		from -= min(ReadEntries, end-floor)
		entries, err := t.After(from)
		if err != nil {
			return 0, err
		}
		for i := min(len(entries), int(end-from)) - 1; i >= 0; i-- {
			if it := entries[i]; it.Seq < seq {
				if it.Head.More == 0 {
					return first, nil
				}
				first = it.Seq
			}
		}
	}
	return first, nil
}

// ChangeScopes returns the scopes, sorted, of the entries from first to last and to
// the end of the change that last is of, and that end. It calls each with the head of
// each of these entries (see Decoded). The store has them. Errors: as After's.
func (t *Tail) ChangeScopes(first, last log.Seq, each func(*log.Event)) (scopes []log.Scope, end log.Seq, err error) {
	more := true
	for at := max(first, 1) - 1; more; {
		entries, err := t.After(at)
		if err != nil {
			return nil, 0, err
		}
		if len(entries) == 0 {
			return nil, 0, fmt.Errorf("entries after %d are missing: %w", at, log.ErrCorrupt)
		}
		for _, it := range entries {
			at = it.Seq
			scopes = append(scopes, it.Head.Scopes...)
			each(it.Head)
			if more = at < last || it.Head.More > 0; !more {
				end = at
				break
			}
		}
	}
	slices.SortFunc(scopes, log.Scope.Compare)
	return slices.Compact(scopes), end, nil
}
