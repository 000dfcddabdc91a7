package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"rutter/log"
)

// changeJSON is the body of POST /changes.
type changeJSON struct {
	ID  log.UUID `json:"id"`
	Ops []opJSON `json:"ops"`
	// Reverts are the entries that the change takes back.
	Reverts log.Reverts `json:"reverts,omitempty"`
}

type opJSON struct {
	Action  log.Action   `json:"action"`
	Kind    log.Kind     `json:"kind"`
	ID      string       `json:"id,omitempty"`
	IfMatch log.Revision `json:"if_match,omitempty"`
	IfSeq   log.Seq      `json:"if_seq,omitempty"`
	Object  any          `json:"object,omitempty"`
}

// Submit writes a change as a whole. The server sets its Time, Seed and Actor. The same
// change may be submitted again, also after an error: it is done once. A refusal is a
// *log.Refusal as the error.
func (c *Client) Submit(ctx context.Context, change *log.Change) (log.Result, error) {
	return c.submit(ctx, change, c.awaiting())
}

// SubmitAwaiting is Submit, and returns when every compute node that the change concerns has
// it in its kernel. If that does not happen within the time, the error is a *PendingError:
// the change is written, and submitting it again waits on. The server waits in the request
// that writes it, so a node, which may wait for its own changes only, submits it once; again
// only if the server fails, or after each maxWait.
func (c *Client) SubmitAwaiting(ctx context.Context, change *log.Change, within time.Duration) (log.Result, error) {
	for end := time.Now().Add(within); ; {
		left := time.Until(end)
		part := max(min(left, maxWait), time.Millisecond).Round(time.Millisecond)
		result, err := c.submit(ctx, change, url.Values{"wait": {"fabric"}, "timeout": {part.String()}})
		if _, pending := errors.AsType[*PendingError](err); !pending || left <= part || ctx.Err() != nil {
			return result, err
		}
	}
}

func (c *Client) submit(ctx context.Context, change *log.Change, query url.Values) (log.Result, error) {
	body := changeJSON{ID: change.ID, Reverts: change.Reverts}
	for _, op := range change.Ops {
		fields, err := fieldsOf(op)
		if err != nil {
			return log.Result{}, err
		}
		body.Ops = append(body.Ops, opJSON{op.Action, op.Kind, op.ID, op.IfMatch, op.IfSeq, fields})
	}
	b, err := json.Marshal(body)
	if err != nil {
		return log.Result{}, fmt.Errorf("client: change %s: %w", change.ID, err)
	}
	var r resultJSON
	if _, err = c.do(ctx, request{method: http.MethodPost, path: "/changes", body: b, query: query}, &r); err != nil {
		return log.Result{}, err
	}
	return log.Result{ChangeID: r.ChangeID, First: r.First, Last: r.Last, Events: r.Events, IDs: r.IDs}, nil
}

// resultJSON is the answer to POST /changes.
type resultJSON struct {
	ChangeID log.UUID `json:"change_id"`
	First    log.Seq  `json:"first"`
	Last     log.Seq  `json:"last"`
	Events   uint32   `json:"events"`
	IDs      []string `json:"ids"`
}

// fieldsOf returns the set fields of an operation's object as JSON. A field that is set
// to its zero value without a JSON form is null.
func fieldsOf(op log.Op) (any, error) {
	if op.Object == nil {
		return nil, nil
	}
	b, err := json.Marshal(op.Object)
	if err != nil {
		return nil, fmt.Errorf("client: %s %s: %w", op.Kind, op.ID, err)
	}
	all := make(map[string]json.RawMessage)
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("client: %s %s: %w", op.Kind, op.ID, err)
	}
	fields := make(map[string]json.RawMessage, len(op.Set))
	for _, name := range op.Set {
		value, ok := all[name]
		if !ok {
			value = json.RawMessage("null")
		}
		fields[name] = value
	}
	return fields, nil
}
