package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"rutter/log"
)

// Barrier says what to wait for.
type Barrier struct {
	Seq     log.Seq     // 0: the head
	Cursor  log.Cursor  // instead of Seq: a position in this log, else a refusal
	Scopes  []log.Scope // none: those of Seq's whole change; without Seq, all CNs
	Timeout time.Duration
	// VM, with Scopes, leaves only the VM's links, and the devices of the scopes' vnets, to
	// wait for. A server of an earlier version waits for all that is in the scopes.
	VM log.UUID
}

// Verdict is the answer to GET /wait.
type Verdict struct {
	Done    bool          `json:"done"`
	Seq     log.Seq       `json:"seq"`
	CNs     int           `json:"cns"` // that are interested
	Waited  time.Duration `json:"waited_ns"`
	Missing []Laggard     `json:"missing"` // at most 100
	Total   int           `json:"missing_total"`
	Reason  string        `json:"reason,omitempty"` // why it is not done, if the cause is not a CN
	// Absent is what is concerned and not there because its VM is not to run: nothing
	// waits for it. It is at most 100 of AbsentTotal.
	Absent      []Waiting `json:"absent,omitempty"`
	AbsentTotal int       `json:"absent_total,omitempty"`
}

// Waiting is an object that a CN's kernel does not have as the log wants it.
type Waiting struct {
	Object  string    `json:"object"` // what it is, and why it is not there
	NIC     log.MAC   `json:"nic,omitzero"`
	VM      log.UUID  `json:"vm_uuid,omitzero"`
	VNet    uint32    `json:"vnet_id,omitempty"`
	Idle    bool      `json:"idle,omitempty"`    // its VM is not to run
	RetryAt time.Time `json:"next_try,omitzero"` // zero: with the next pass
	CN      log.UUID  `json:"cn_uuid,omitzero"`  // in Verdict.Absent
}

// Laggard is a CN that has not programmed the change.
type Laggard struct {
	CN         log.UUID `json:"cn_uuid"`
	Hostname   string   `json:"hostname,omitempty"`
	Server     string   `json:"server,omitempty"`
	Applied    log.Seq  `json:"applied"`
	Programmed log.Seq  `json:"programmed"`
	AgeMS      int64    `json:"heard_ms"` // milliseconds since its last sign; -1: none
	Reason     string   `json:"reason"`
	// Objects are those that it lacks, if only they are missing: at most 8 of Waiting.
	Objects []Waiting `json:"objects,omitempty"`
	Waiting int       `json:"objects_total,omitempty"`
}

// PendingError: a write is written, but not every CN has it in its kernel after
// Config.Await. Do not repeat the write: that would do it twice.
type PendingError struct {
	Message string
	Verdict Verdict // empty if no server could tell
}

// Error implements error.
func (e *PendingError) Error() string { return e.Message }

// awaiting is the query of a write.
func (c *Client) awaiting() url.Values {
	if c.cfg.Await == 0 {
		return nil
	}
	return url.Values{"wait": {"fabric"}, "timeout": {c.cfg.Await.String()}}
}

// pendingOf reads the body of an answer 202; nil if that is of another kind.
func pendingOf(body []byte) *PendingError {
	var answer struct {
		Code    string  `json:"code"`
		Message string  `json:"message"`
		Fabric  Verdict `json:"fabric"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Code != "FabricPending" {
		return nil
	}
	return &PendingError{answer.Message, answer.Fabric}
}

// Wait waits until every interested CN has programmed b.Seq, or the time is over: that
// is not an error. If a server fails meanwhile, Wait asks another.
func (c *Client) Wait(ctx context.Context, b Barrier) (Verdict, error) {
	query := url.Values{}
	if b.Seq > 0 {
		query.Set("seq", b.Seq.String())
	}
	if !b.Cursor.Cluster.IsZero() {
		query.Set("seq", b.Cursor.String())
	}
	if len(b.Scopes) > 0 {
		scopes := make([]string, len(b.Scopes))
		for i, scope := range b.Scopes {
			scopes[i] = scope.String()
		}
		query.Set("scope", strings.Join(scopes, ","))
		if !b.VM.IsZero() {
			query.Set("vm", b.VM.String())
		}
	}
	deadline := time.Now().Add(b.Timeout)
	ctx, cancel := context.WithTimeout(ctx, b.Timeout+c.cfg.Timeout)
	defer cancel()
	return ask(ctx, c, manner{read: true, slow: true}, func(ctx context.Context, server *url.URL) (v Verdict, err error) {
		query := query
		for {
			left := max(time.Until(deadline), 0)
			err := c.waitOnce(ctx, server, query, left, &v)
			if refusal, is := errors.AsType[*log.Refusal](err); is && query.Has("vm") && refusesParameter(refusal, "vm") {
				query = cloneQuery(query)
				query.Del("vm") // the server does not know it
				continue
			}
			return v, err
		}
	}, nil)
}

// waitOnce asks one server, which answers after left at the latest.
func (c *Client) waitOnce(ctx context.Context, server *url.URL, query url.Values, left time.Duration, v *Verdict) error {
	query = cloneQuery(query)
	query.Set("timeout", left.Round(time.Millisecond).String())
	ctx, cancel := context.WithTimeout(ctx, left+c.cfg.AttemptTimeout)
	defer cancel()
	response, err := c.send(ctx, server, request{method: http.MethodGet, path: "/wait", query: query})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return readAnswer(response, v)
}

// refusesParameter reports whether a refusal is of a query parameter.
func refusesParameter(refusal *log.Refusal, name string) bool {
	return slices.ContainsFunc(refusal.Errors, func(e log.FieldError) bool { return e.Field == name })
}

// EverySession returns the newest session of each CN, with any server.
func (c *Client) EverySession(ctx context.Context) ([]Session, error) {
	var sessions []Session
	_, err := c.do(ctx, request{method: http.MethodGet, path: "/cns", query: url.Values{"everywhere": {"1"}}}, &sessions)
	return sessions, err
}

// Frame is one frame of the feed of a CN, in the form of GET /cns/UUID/feed.
type Frame struct {
	Frame  string          `json:"frame"` // entry, object, scope_begin, scope_end, scope_dropped, bookmark, reset or drain
	Seq    log.Seq         `json:"seq"`
	Entry  *log.Line       `json:"entry,omitempty"`
	Scope  string          `json:"scope,omitempty"`
	Kind   string          `json:"kind,omitempty"`
	ID     string          `json:"id,omitempty"`
	Object json.RawMessage `json:"object,omitempty"`
	Count  uint32          `json:"count,omitempty"`
	Text   string          `json:"text,omitempty"`
}

// Observe yields what a CN would be sent that is at a seq and holds its interest, until
// ctx ends or the server fails.
func (c *Client) Observe(ctx context.Context, cn log.UUID, after log.Seq) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		response, err := c.open(ctx, request{
			method: http.MethodGet, path: "/cns/" + cn.String() + "/feed", query: url.Values{"after": {after.String()}},
		})
		if err != nil {
			yield(Frame{}, err)
			return
		}
		defer response.Body.Close()
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, maxLine)
		for lines.Scan() {
			var f Frame
			err := json.Unmarshal(lines.Bytes(), &f)
			if err != nil {
				err = fmt.Errorf("feed of %s: %w", cn, err)
			}
			if !yield(f, err) || err != nil {
				return
			}
		}
		switch err := lines.Err(); {
		case ctx.Err() != nil:
			yield(Frame{}, ctx.Err())
		case err != nil:
			yield(Frame{}, fmt.Errorf("feed of %s: %w", cn, err))
		}
	}
}
