package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"rutter/api/backend"
	"rutter/api/internal/nodes"
	"rutter/api/internal/rest"
	"rutter/log"
)

// readObject reads an object from the body, and returns the names of the fields that
// are in it.
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

// uuidOf parses a text that was already checked.
func uuidOf(text string) log.UUID {
	u, err := log.ParseUUID(text)
	if err != nil {
		panic("api: " + err.Error())
	}
	return u
}

// changeForm is the body of POST /changes.
type changeForm struct {
	ID  log.UUID `json:"id"`
	Ops []opForm `json:"ops"`
	// Reverts are the entries that the change takes back.
	Reverts log.Reverts `json:"reverts"`
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

// changeRoutes take several operations at once.
type changeRoutes struct {
	store backend.Store
	write *backend.Writer
}

func (c *changeRoutes) routes() []rest.Route {
	return []rest.Route{{Method: "POST", Pattern: "/changes", Serve: c.change}}
}

// change answers POST /changes: several operations, all or none.
func (c *changeRoutes) change(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r, nodes.Waiting...); err != nil {
		return err
	}
	body, err := rest.ReadBody(r)
	if err != nil {
		return err
	}
	asked, err := parseChange(body)
	if err != nil {
		return err
	}
	chosen, err := c.write.ChangeID(r)
	if err != nil {
		return err
	}
	switch {
	case asked.ID.IsZero():
		asked.ID = chosen
	case r.Header.Get(rest.HeaderChangeID) != "" && asked.ID != chosen:
		return rest.Fail(http.StatusBadRequest, rest.CodeBadRequest, "send one of them", "the body says change id %s, the header %s", asked.ID, chosen)
	}
	result, err := c.write.Write(w, r, asked)
	if err != nil {
		return err
	}
	backend.Warn(w, c.store.View, asked.Ops, result.IDs)
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
		if err := backend.CheckChangeID(form.ID, "id"); err != nil {
			return nil, err
		}
	}
	c := &log.Change{ID: form.ID, Ops: make([]log.Op, len(form.Ops)), Reverts: form.Reverts}
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

// inOp adds the operation's index to the fields of its errors.
func inOp(i int, err error) error {
	answer := backend.ErrorOf(err)
	named := *answer
	named.Errors = slices.Clone(answer.Errors)
	for j := range named.Errors {
		named.Errors[j].Field = fmt.Sprintf("ops[%d].%s", i, named.Errors[j].Field)
	}
	return &named
}
