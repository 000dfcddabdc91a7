package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/rest"
	"rutter/log"
)

// changeWriter has changes written, for whoever answers a request with what became of
// them.
type changeWriter struct {
	store    Store
	newID    func() (log.UUID, error)
	guard    *guard.Guard
	answered *rest.Acknowledged
	barrier  fabricWaiter
}

func (cw *changeWriter) routes() []rest.Route {
	return []rest.Route{{Method: "POST", Pattern: "/changes", Serve: cw.change}}
}

// fabricWaiter waits until the compute nodes have programmed a change.
type fabricWaiter interface {
	// wanted reads from a request whether, and how long, to wait.
	wanted(r *http.Request) (timeout time.Duration, is bool, err error)
	await(w http.ResponseWriter, r *http.Request, c *log.Change, result log.Result, timeout time.Duration) error
}

// readObject reads an object from the body, and the names of the fields given.
func readObject(r *http.Request, kind log.Kind) (log.Object, []string, error) {
	body, err := rest.ReadBody(r)
	if err != nil {
		return nil, nil, err
	}
	return log.ParseObject(kind, body)
}

// withName adds a name to a sorted list of names.
func withName(names []string, name string) []string {
	if at, found := slices.BinarySearch(names, name); !found {
		return slices.Insert(names, at, name)
	}
	return names
}

// uuidOf parses a text that was checked before.
func uuidOf(text string) log.UUID {
	u, err := log.ParseUUID(text)
	if err != nil {
		panic("api: " + err.Error())
	}
	return u
}

// changeID returns the id that the client chose for its change, or a new one.
func (cw *changeWriter) changeID(r *http.Request) (log.UUID, error) {
	text := r.Header.Get(rest.HeaderChangeID)
	if text == "" {
		return cw.newID()
	}
	id, err := log.ParseUUID(text)
	if err != nil {
		return id, rest.Fail(http.StatusBadRequest, rest.CodeBadRequest, "send a UUID of version 7, or leave it out", "header %s: %v", rest.HeaderChangeID, err)
	}
	return id, checkChangeID(id, "header "+rest.HeaderChangeID)
}

func checkChangeID(id log.UUID, where string) error {
	if _, ok := id.UnixMilli(); !ok {
		return rest.Fail(http.StatusBadRequest, rest.CodeBadRequest, "send a UUID of version 7 (RFC 9562), whose time says how long a retry is recognised, or leave it out",
			"%s: change id %s is not of version 7", where, id)
	}
	return nil
}

// propose has a change written and waits until this server has it too, so that
// the answer can show what became of the object.
func (cw *changeWriter) propose(w http.ResponseWriter, r *http.Request, c *log.Change) (log.Result, error) {
	result, err := cw.write(w, r, c)
	if err != nil {
		return result, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), waitTime)
	defer cancel()
	if err := cw.store.WaitSeq(ctx, result.Last); err != nil {
		return result, rest.Fail(http.StatusServiceUnavailable, rest.CodeNotYet, "the change is written as seq "+result.Last.String()+"; read it with ?min_seq, here or elsewhere",
			"this server did not reach the change in time: %v", err)
	}
	return result, nil
}

// write has a change written. A follower may not have it yet when this returns;
// the reads that this server answers from now on wait for it (see fresh). The
// error is a *log.Refusal if the change was refused.
func (cw *changeWriter) write(w http.ResponseWriter, r *http.Request, c *log.Change) (log.Result, error) {
	timeout, waits, err := cw.barrier.wanted(r)
	if err != nil {
		return log.Result{}, err
	}
	w.Header().Set(rest.HeaderChangeID, c.ID.String())
	c.Actor, c.By = cw.guard.Actor(r), guard.GrantOf(r).Who.Author()
	ctx, cancel := context.WithTimeout(r.Context(), waitTime)
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
	cw.answered.Note(result.Last)
	if waits {
		return result, cw.barrier.await(w, r, c, result, timeout)
	}
	return result, nil
}

// unknown is the answer when nobody knows what became of a change.
func unknown(err error) *rest.Error {
	return rest.Fail(http.StatusServiceUnavailable, rest.CodeUnknown, "look whether it was made, or send it again with the same "+rest.HeaderChangeID+", and nothing else: it is applied once",
		"it is not known whether the change was made: %v", err)
}

// changeForm is the body of POST /changes.
type changeForm struct {
	ID  log.UUID `json:"id"`
	Ops []opForm `json:"ops"`
}

type opForm struct {
	Action  log.Action      `json:"action"`
	Kind    log.Kind        `json:"kind"`
	ID      string          `json:"id"`
	IfMatch log.Revision    `json:"if_match"`
	IfSeq   log.Seq         `json:"if_seq"`
	Object  json.RawMessage `json:"object"`
}

// resultForm is the answer to POST /changes.
type resultForm struct {
	ChangeID log.UUID `json:"change_id"`
	First    log.Seq  `json:"first"`
	Last     log.Seq  `json:"last"`
	Events   uint32   `json:"events"`
	IDs      []string `json:"ids"`
}

// change answers POST /changes: several operations, all or none.
func (cw *changeWriter) change(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r, waiting...); err != nil {
		return err
	}
	body, err := rest.ReadBody(r)
	if err != nil {
		return err
	}
	c, err := parseChange(body)
	if err != nil {
		return err
	}
	chosen, err := cw.changeID(r)
	if err != nil {
		return err
	}
	switch {
	case c.ID.IsZero():
		c.ID = chosen
	case r.Header.Get(rest.HeaderChangeID) != "" && c.ID != chosen:
		return rest.Fail(http.StatusBadRequest, rest.CodeBadRequest, "send one of them", "the body says change id %s, the header %s", c.ID, chosen)
	}
	result, err := cw.write(w, r, c)
	if err != nil {
		return err
	}
	rest.SetSeq(w, result.Last)
	rest.WriteJSON(w, r, http.StatusOK, resultForm{result.ChangeID, result.First, result.Last, result.Events, append([]string{}, result.IDs...)})
	return nil
}

// parseChange reads the body of POST /changes.
func parseChange(body []byte) (*log.Change, error) {
	var form changeForm
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&form); err != nil {
		return nil, badChange(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, badChange(errors.New("text after the change"))
	}
	if len(form.Ops) == 0 || len(form.Ops) > log.MaxOps {
		return nil, rest.BadParameter("ops", log.ElementInvalid, fmt.Sprintf("send 1 to %d operations", log.MaxOps), "got %d operations", len(form.Ops))
	}
	if !form.ID.IsZero() {
		if err := checkChangeID(form.ID, "id"); err != nil {
			return nil, err
		}
	}
	c := &log.Change{ID: form.ID, Ops: make([]log.Op, len(form.Ops))}
	for i, op := range form.Ops {
		parsed, err := op.parse()
		if err != nil {
			return nil, inOp(i, err)
		}
		c.Ops[i] = parsed
	}
	return c, nil
}

func badChange(err error) error {
	return rest.BadParameter("body", log.ElementInvalid, `send {"ops": [{"action": "create", "kind": "nic_tag", "object": {"name": "external"}}]}`, "the body is not a change: %v", err)
}

func (f *opForm) parse() (log.Op, error) {
	op := log.Op{Action: f.Action, Kind: f.Kind, ID: f.ID, IfMatch: f.IfMatch, IfSeq: f.IfSeq}
	if f.Action == 0 || f.Kind == 0 {
		return op, rest.BadParameter("action", log.ElementMissing, "send action (create, update or delete) and kind", "action or kind is missing")
	}
	if f.Action != log.Create && f.ID == "" {
		return op, rest.BadParameter("id", log.ElementMissing, "name the object", "an %s needs an id", f.Action)
	}
	if f.Action == log.Delete {
		if f.Object != nil {
			return op, rest.BadParameter("object", log.ElementInvalid, "leave it out", "a delete has no object")
		}
		return op, nil
	}
	if f.Action == log.Create && f.ID != "" {
		return op, rest.BadParameter("id", log.ElementInvalid, "put the id into the object", "a create takes its id from the object")
	}
	if f.Object == nil {
		return op, rest.BadParameter("object", log.ElementMissing, "send the fields of the object", "a %s needs an object", f.Action)
	}
	var err error
	op.Object, op.Set, err = log.ParseObject(f.Kind, f.Object)
	return op, err
}

// inOp puts the operation's place before the fields of its errors.
func inOp(i int, err error) error {
	answer := errorOf(err)
	named := *answer
	named.Errors = slices.Clone(answer.Errors)
	for j := range named.Errors {
		named.Errors[j].Field = fmt.Sprintf("ops[%d].%s", i, named.Errors[j].Field)
	}
	return &named
}
