package log

import (
	"fmt"
	"strconv"
	"strings"
)

// ETag returns the entity tag of an object (RFC 9110 section 8.8.3): revision and
// seq of its last event, in quotes, as in "3-1207". It is the same in every header
// Etag and in every item of the change feed. An object that was deleted and made
// again begins with revision 1 anew; the seq is never the same.
func ETag(revision Revision, seq Seq) string { return `"` + tagOf(revision, seq) + `"` }

func tagOf(revision Revision, seq Seq) string { return revision.String() + "-" + seq.String() }

// ParseETag reads what ETag returns; the quotes may be missing, as old clients
// leave them out.
func ParseETag(text string) (Revision, Seq, error) {
	bare := text
	if len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"' {
		bare = text[1 : len(text)-1]
	}
	before, after, _ := strings.Cut(bare, "-")
	revision, err := strconv.ParseUint(before, 10, 64)
	if err == nil {
		var seq Seq
		if seq, err = ParseSeq(after); err == nil && revision > 0 && seq > 0 && tagOf(Revision(revision), seq) == bare {
			return Revision(revision), seq, nil
		}
	}
	return 0, 0, fmt.Errorf("etag %s: want one as an answer's header Etag has it, as in %s", text, ETag(3, 1207))
}

// Condition is what the operation asks of its object, as ETag has it without the
// quotes, or the revision alone if it gives no seq.
func (op *Op) Condition(revision Revision, seq Seq) (want, got string, met bool) {
	met = (op.IfMatch == 0 || op.IfMatch == revision) && (op.IfSeq == 0 || op.IfSeq == seq)
	if op.IfSeq == 0 {
		return op.IfMatch.String(), revision.String(), met
	}
	return tagOf(op.IfMatch, op.IfSeq), tagOf(revision, seq), met
}
