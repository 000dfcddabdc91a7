package rest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/google/uuid"

	"rutter/log"
)

// HeaderWarning is what operators must know about a write that was accepted, one line in
// each.
const HeaderWarning = "Rutter-Warning"

// HeaderChangeID names the change of a request: a repeated request with the same id is
// done once.
const HeaderChangeID = "Rutter-Change-Id"

// ofWaiting are the parameters that say how long the answer may take, and nothing about
// the change.
var ofWaiting = []string{"wait", "timeout", "sync"}

// contentKey is the context key of the request's content.
type contentKey struct{}

// NoteContent returns the request with its content in its context, if the request names
// its change. A server makes the change from the content and the present state. So a
// retry may find another state, and is the same change all the same. The body was read
// then, and can be read again. It must be bounded. The error is that of reading it.
func NoteContent(r *http.Request) (*http.Request, error) {
	if r.Header.Get(HeaderChangeID) == "" {
		return r, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return r, err
	}
	query := r.URL.Query()
	for _, name := range ofWaiting {
		query.Del(name)
	}
	content := log.RequestContent(r.Method, r.URL.Path, query.Encode(), body)
	r = r.WithContext(context.WithValue(r.Context(), contentKey{}, content))
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r, nil
}

// ContentOf returns the content that NoteContent recorded, or zero: then the change's
// operations are its content.
func ContentOf(r *http.Request) log.Content {
	if r.Header.Get(HeaderChangeID) == "" {
		return log.Content{}
	}
	content, _ := r.Context().Value(contentKey{}).(log.Content)
	return content
}

// NewChangeID makes the id of a change: a UUID of version 7 by this machine's clock.
func NewChangeID() (log.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return log.UUID{}, fmt.Errorf("change id: %w", err)
	}
	return log.UUID(id), nil
}

// Acknowledged is the highest seq of the changes that this server acknowledged. Reads
// wait for it, so that a client that writes and then reads finds what it wrote. The
// zero value is seq 0.
type Acknowledged struct{ seq atomic.Uint64 }

// Note records that a client knows seq.
func (a *Acknowledged) Note(seq log.Seq) {
	for known := a.seq.Load(); uint64(seq) > known; known = a.seq.Load() {
		if a.seq.CompareAndSwap(known, uint64(seq)) {
			return
		}
	}
}

// Seq returns the highest recorded seq.
func (a *Acknowledged) Seq() log.Seq { return log.Seq(a.seq.Load()) }
