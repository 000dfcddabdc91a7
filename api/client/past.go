package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"

	"rutter/log"
)

// StateObject is an object at a seq of the log.
type StateObject struct {
	Object   log.Object
	Revision log.Revision
	Seq      log.Seq // of its last entry
}

// StateAnswer is a state, or a part of one, at a seq of the log.
type StateAnswer struct {
	Seq log.Seq
	// Digest is that of the whole state (log.Digest), or "" if the server read only a
	// part. It cannot be computed from the JSON form of objects.
	Digest  string
	Objects []StateObject
}

// State returns the objects at a seq of the log. The query has at (a seq or a time;
// default: the head), kind, cn and vnet, as GET /log/state. Errors are those of Log.
func (c *Client) State(ctx context.Context, query url.Values) (*StateAnswer, error) {
	response, err := c.stream(ctx, request{method: http.MethodGet, path: "/log/state", query: query})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	seq, err := log.ParseSeq(response.Header.Get("Rutter-Seq"))
	if err != nil {
		return nil, fmt.Errorf("client: the answer names no seq: %w", err)
	}
	answer := &StateAnswer{Seq: seq, Digest: response.Header.Get("Rutter-Digest")}
	in := json.NewDecoder(bufio.NewReaderSize(response.Body, entriesBuffer))
	for {
		var line struct {
			Kind     log.Kind        `json:"kind"`
			Revision log.Revision    `json:"revision"`
			Seq      log.Seq         `json:"seq"`
			Object   json.RawMessage `json:"object"`
		}
		if err := in.Decode(&line); errors.Is(err, io.EOF) {
			return answer, nil
		} else if err != nil {
			return nil, fmt.Errorf("client: the state at %d: %w", seq, err)
		}
		object, _, err := log.ParseObject(line.Kind, line.Object)
		if err != nil {
			return nil, fmt.Errorf("client: the state at %d: %w", seq, err)
		}
		answer.Objects = append(answer.Objects, StateObject{object, line.Revision, line.Seq})
	}
}

// historyPage is how many entries of a history are asked for at once.
const historyPage = 1000

// History yields the kept entries about one object, in order. The server finds them by
// its index. Errors are those of Log; an *Error with status 501 if the server has no
// index.
func (c *Client) History(ctx context.Context, kind log.Kind, id string) iter.Seq2[log.Line, error] {
	return func(yield func(log.Line, error) bool) {
		for after, more := log.Seq(0), true; more; {
			n := 0
			err := c.historyOnce(ctx, kind, id, after, func(l log.Line) bool {
				after = l.Seq
				n++
				more = yield(l, nil)
				return more
			})
			if err != nil {
				yield(log.Line{}, err)
				return
			}
			more = more && n == historyPage
		}
	}
}

func (c *Client) historyOnce(ctx context.Context, kind log.Kind, id string, after log.Seq, fn func(log.Line) bool) error {
	response, err := c.stream(ctx, request{method: http.MethodGet, path: "/log/history", query: url.Values{
		"kind": {kind.String()}, "object": {id}, "after": {after.String()}, "limit": {fmt.Sprint(historyPage)},
	}})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	in := json.NewDecoder(bufio.NewReaderSize(response.Body, entriesBuffer))
	for {
		var l log.Line
		if err := in.Decode(&l); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("client: history of %s %s: %w", kind, id, err)
		}
		if !fn(l) {
			return nil
		}
	}
}
