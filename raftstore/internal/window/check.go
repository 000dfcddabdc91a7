package window

import (
	"bytes"
	"fmt"
	"time"

	"rutter/log"
)

// Check refuses an id that the window cannot judge. The id must not be a known one.
func (w *Window) Check(id log.UUID, asker log.Asker, now log.Time) *log.Refusal {
	ms, ok := id.UnixMilli()
	if !ok {
		return BadID(log.CodeInvalidParameters, id, "is not a UUID of version 7", "make a new UUIDv7 for each change, and keep it for its retries")
	}
	if !w.contained {
		return w.checkFirst(id, log.Time(ms*int64(time.Millisecond)), now)
	}
	at := TimeOf(id)
	if at > now+log.Time(w.ahead) {
		return BadID(log.CodeInvalidParameters, id,
			fmt.Sprintf("is of %s by the clock of the client, %v ahead of the cluster's clock, %s; at most %v is taken", at, round(at-now), now, w.ahead),
			"compare the client's clock with the cluster's: one of them is wrong, and the cluster's is what its servers agree on")
	}
	if w.before(id, now) {
		return tooOld(id,
			fmt.Sprintf("is of %s by the clock of the client, %v behind the cluster's clock, %s, and ids are remembered for %v: the change may have been applied already", at, round(now-at), now, w.age-w.ahead),
			"look whether the change was made; if it was never sent before, compare the client's clock with the cluster's, which is what its servers agree on")
	}
	if bytes.Compare(id[:], w.trimmed[:]) <= 0 {
		return tooOld(id,
			fmt.Sprintf("is of %s, and what was made until then is not remembered any more, since the cluster's clock, now %s, was set back or the cluster was upgraded: the change may have been applied already", at, now),
			"look whether the change was made")
	}
	if mark := w.lowMarkOf(asker); bytes.Compare(id[:], mark[:]) <= 0 {
		return tooOld(id,
			fmt.Sprintf("is of %s by the clock of the client, and of its author only newer ones are remembered, since it has made more changes than there is room for: the change may have been applied already", at),
			"look whether the change was made; send fewer changes at once, and retry them sooner")
	}
	return nil
}

// checkFirst is Check below log.FeatureContained. at may overflow, as it did in the first
// version.
func (w *Window) checkFirst(id log.UUID, at, now log.Time) *log.Refusal {
	if at > now+log.Time(MaxAhead) {
		return BadID(log.CodeInvalidParameters, id, fmt.Sprintf("is of %s, more than %v ahead of the cluster's clock, %s", at, MaxAhead, now), "set the client's clock right")
	}
	if at < now-log.Time(w.age) || bytes.Compare(id[:], w.trimmed[:]) <= 0 {
		return BadID(log.CodeTooOld, id, fmt.Sprintf("is of %s, older than the ids that are remembered: it may have been applied already", at), "look whether the change was made; if not, send it with a new id")
	}
	return nil
}

// round returns a time as a rounded duration, for messages.
func round(d log.Time) time.Duration { return time.Duration(d).Round(time.Millisecond) }

func tooOld(id log.UUID, what, remedy string) *log.Refusal {
	return BadID(log.CodeTooOld, id, what, remedy)
}

// IDReused is the refusal of a change whose id another change has used.
func IDReused(id log.UUID) *log.Refusal {
	return BadID(log.CodeIDReused, id, "belongs to another change, which was decided before: nothing of this one was applied",
		"make a new UUIDv7 for each change, and use it again for retries of the same change only, unaltered and by the same author")
}

// BadID is the refusal of a change because of its id; what is the reason.
func BadID(code string, id log.UUID, what, remedy string) *log.Refusal {
	return &log.Refusal{
		Code: code, Message: fmt.Sprintf("change id %s %s", id, what),
		Errors: []log.FieldError{{Field: "id", Code: log.ElementInvalid, Message: what, Remedy: remedy}},
	}
}

// Takes reports whether the window can remember an unknown id. It can remember one that
// is ahead of the cluster's time: the stamp of its change was not used, and such an id
// pushes out no other.
func (w *Window) Takes(id log.UUID, now log.Time) bool {
	_, ok := id.UnixMilli()
	if _, known := w.known[id]; known || !ok {
		return false
	}
	if bytes.Compare(id[:], w.trimmed[:]) <= 0 {
		return false
	}
	if w.contained {
		return !w.before(id, now)
	}
	return TimeOf(id) >= now-log.Time(w.age)
}
