package rest

import (
	"net/http"

	"rutter/log"
)

// Names of headers that say which part of the log an answer is of.
const (
	HeaderSeq    = "Rutter-Seq"    // the seq that an answer is as of; of a long list, when it began
	HeaderCursor = "Rutter-Cursor" // of the head, with answers of GET /log
	HeaderChain  = "Rutter-Chain"  // SEQ:HASH of the first entry of an answer in the binary form
)

// CodeCompacted is the code of an answer about entries that are not kept any more (410).
const CodeCompacted = "CursorCompacted"

// SetSeq sets the seq that an answer is as of.
func SetSeq(w http.ResponseWriter, seq log.Seq) { w.Header().Set(HeaderSeq, seq.String()) }

// SetCursor sets the seq that an answer is as of, and the cursor to follow the log
// from there.
func SetCursor(w http.ResponseWriter, at log.Cursor) {
	SetSeq(w, at.Seq)
	w.Header().Set(HeaderCursor, at.String())
}
