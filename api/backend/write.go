package backend

import (
	"context"
	"errors"
	"net/http"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/internal/rest"
	"rutter/log"
)

// Writer writes changes and answers requests with their results.
type Writer struct {
	store        Store
	guard        *guard.Guard
	acknowledged *rest.Acknowledged
	newID        func() (log.UUID, error)
	fabric       FabricWait
}

// FabricWait waits until the compute nodes have programmed a change.
type FabricWait struct {
	// Wanted reads from a request whether to wait, and how long.
	Wanted func(r *http.Request) (timeout time.Duration, is bool, err error)
	// Await waits, and writes the result into the answer's header.
	Await func(w http.ResponseWriter, r *http.Request, c *log.Change, result log.Result, timeout time.Duration) error
}

// NewWriter returns a writer to a store. It records acknowledged changes in
// acknowledged. newID makes ids for the changes of clients that send none.
func NewWriter(store Store, g *guard.Guard, acknowledged *rest.Acknowledged, newID func() (log.UUID, error), fabric FabricWait) *Writer {
	return &Writer{store: store, guard: g, acknowledged: acknowledged, newID: newID, fabric: fabric}
}

// ChangeID returns the id that the client chose for its change, or a new one.
func (cw *Writer) ChangeID(r *http.Request) (log.UUID, error) {
	text := r.Header.Get(rest.HeaderChangeID)
	if text == "" {
		return cw.newID()
	}
	id, err := log.ParseUUID(text)
	if err != nil {
		return id, rest.Fail(http.StatusBadRequest, rest.CodeBadRequest, "send a UUID of version 7, or leave it out", "header %s: %v", rest.HeaderChangeID, err)
	}
	return id, CheckChangeID(id, "header "+rest.HeaderChangeID)
}

func CheckChangeID(id log.UUID, where string) error {
	if _, ok := id.UnixMilli(); !ok {
		return rest.Fail(http.StatusBadRequest, rest.CodeBadRequest, "send a UUID of version 7 (RFC 9562), whose time says how long a retry is recognised, or leave it out",
			"%s: change id %s is not of version 7", where, id)
	}
	return nil
}

// Propose writes a change and waits until this server has applied it too, so that the
// answer can show the object.
func (cw *Writer) Propose(w http.ResponseWriter, r *http.Request, c *log.Change) (log.Result, error) {
	result, err := cw.Write(w, r, c)
	if err != nil {
		return result, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), WaitTime)
	defer cancel()
	if err := cw.store.WaitSeq(ctx, result.Last); err != nil {
		return result, rest.Fail(http.StatusServiceUnavailable, rest.CodeNotYet, "the change is written as seq "+result.Last.String()+"; read it with ?min_seq, here or elsewhere",
			"this server did not reach the change in time: %v", err)
	}
	return result, nil
}

// Write writes a change. A follower may not have applied it when this returns; later
// reads on this server wait for it (see Reader.Fresh). The error is a *log.Refusal if
// the change was refused.
func (cw *Writer) Write(w http.ResponseWriter, r *http.Request, c *log.Change) (log.Result, error) {
	timeout, waits, err := cw.fabric.Wanted(r)
	if err != nil {
		return log.Result{}, err
	}
	w.Header().Set(rest.HeaderChangeID, c.ID.String())
	c.Actor, c.By = cw.guard.Actor(r), guard.GrantOf(r).Who.Author()
	ctx, cancel := context.WithTimeout(r.Context(), WaitTime)
	defer cancel()
	result, err := cw.store.Propose(ctx, c)
	switch {
	case errors.Is(err, ErrUnknown):
		return result, unknown(err)
	case errors.Is(err, ErrNoLeader), errors.Is(err, ErrOverloaded), errors.Is(err, ErrClock), errors.Is(err, log.ErrNoRoom):
		return result, err
	case errors.Is(err, log.ErrTooLarge):
		return result, rest.Fail(http.StatusRequestEntityTooLarge, rest.CodeTooLarge, "split the change", "%v", err)
	case err != nil:
		return result, unknown(err)
	case result.Refusal != nil:
		return result, result.Refusal
	}
	cw.acknowledged.Note(result.Last)
	if waits {
		return result, cw.fabric.Await(w, r, c, result, timeout)
	}
	return result, nil
}

// unknown is the answer if the fate of a change is unknown.
func unknown(err error) *rest.Error {
	return rest.Fail(http.StatusServiceUnavailable, rest.CodeUnknown, "look whether it was made, or send it again with the same "+rest.HeaderChangeID+", and nothing else: it is applied once",
		"it is not known whether the change was made: %v", err)
}
