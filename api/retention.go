package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"rutter/api/rest"
	"rutter/log"
)

// Retainer says and sets how much of the log a cluster keeps.
type Retainer interface {
	// PlanRetention says what r would let go now, on this server; nil is the
	// retention that the cluster has. Nothing is changed.
	PlanRetention(r *Retention) (RetentionPlan, error)
	// SetRetention changes what the cluster keeps.
	SetRetention(ctx context.Context, r Retention) error
}

// Retention keeps entries that are younger than Age or among the newest Events,
// whichever is more, as long as no more than Bytes are in use, which wins.
type Retention struct {
	Age    time.Duration
	Events uint64
	Bytes  uint64
}

// RetentionPlan is what a retention means for a server as it is now.
type RetentionPlan struct {
	Retention
	Head, Floor log.Seq  // entries after Floor are kept
	Oldest      log.Time // of the first entry kept; 0: there is none
	Used        uint64   // bytes in use
	Next        log.Seq  // where the floor would go now; Floor if it stays
	NextTime    log.Time // of the last entry that would go
}

// retentionForm is the body of PUT /cluster/retention; what is missing stays as
// it is.
type retentionForm struct {
	Age    string `json:"age,omitempty"` // as in 168h
	Events uint64 `json:"events,omitempty"`
	Bytes  uint64 `json:"bytes,omitempty"`
}

// planForm is the answer of /cluster/retention.
type planForm struct {
	Age      string   `json:"age"`
	Events   uint64   `json:"events"`
	Bytes    uint64   `json:"bytes"`
	Head     log.Seq  `json:"head"`
	Floor    log.Seq  `json:"floor"`
	Oldest   log.Time `json:"oldest,omitzero"`
	Used     uint64   `json:"used_bytes"`
	Next     log.Seq  `json:"next_floor"`
	NextTime log.Time `json:"next_floor_time,omitzero"`
	Goes     uint64   `json:"entries_to_go"`
}

// getRetention answers GET /cluster/retention: what is kept, and with age,
// events or bytes in the query, what would go if these were set.
func (c *clusterRoutes) getRetention(w http.ResponseWriter, r *http.Request) error {
	p, err := rest.Query(r, "age", "events", "bytes")
	if err != nil {
		return err
	}
	events, err := p.Number("events", 0, 1, 1<<63)
	if err != nil {
		return err
	}
	size, err := p.Number("bytes", 0, 1, 1<<63)
	if err != nil {
		return err
	}
	return c.retention(w, r, retentionForm{p.Text("age"), events, size}, false)
}

// putRetention answers PUT /cluster/retention.
func (c *clusterRoutes) putRetention(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r); err != nil {
		return err
	}
	body, err := rest.ReadBody(r)
	if err != nil {
		return err
	}
	var f retentionForm
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return rest.BadParameter("body", log.ElementInvalid, `send {"age": "168h", "events": 10000000, "bytes": 17179869184}, or a part of it`, "the body is not a retention: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return rest.BadParameter("body", log.ElementInvalid, "send one JSON object", "text after the retention")
	}
	if f == (retentionForm{}) {
		return rest.BadParameter("body", log.ElementMissing, "send age, events or bytes", "nothing to change")
	}
	return c.retention(w, r, f, true)
}

// leastRetention is the smallest cap that is taken: below it the log would be
// gone before its followers have read it.
const leastRetention = 64 << 20

// retention answers with the plan of what the cluster has, changed as f says,
// and sets it first if told to.
func (c *clusterRoutes) retention(w http.ResponseWriter, r *http.Request, f retentionForm, set bool) error {
	if c.retainer == nil {
		return rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "ask a server of a cluster", "this server's retention cannot be changed")
	}
	plan, err := c.retainer.PlanRetention(nil)
	if err == nil && f != (retentionForm{}) {
		want := plan.Retention
		if f.Age != "" {
			if want.Age, err = time.ParseDuration(f.Age); err != nil || want.Age < 0 {
				return rest.BadParameter("age", log.ElementInvalid, "send hours, minutes and seconds, as in 168h or 90m", "got %q", f.Age)
			}
		}
		if f.Bytes != 0 && f.Bytes < leastRetention {
			return rest.BadParameter("bytes", log.ElementInvalid, "send at least "+strconv.Itoa(leastRetention), "%d bytes would keep next to nothing", f.Bytes)
		}
		want.Events, want.Bytes = firstSet(f.Events, want.Events), firstSet(f.Bytes, want.Bytes)
		plan, err = c.retainer.PlanRetention(&want)
		if err == nil && set {
			if err := c.changeCluster(r, func(ctx context.Context) error { return c.retainer.SetRetention(ctx, want) }); err != nil {
				return err
			}
		}
	}
	if err != nil {
		return rest.BadParameter("body", log.ElementInvalid, "look at GET /cluster/retention for what there is", "%v", err)
	}
	rest.SetSeq(w, plan.Head)
	rest.WriteJSON(w, r, http.StatusOK, planForm{
		Age: plan.Age.String(), Events: plan.Events, Bytes: plan.Bytes, Head: plan.Head, Floor: plan.Floor, Oldest: plan.Oldest,
		Used: plan.Used, Next: plan.Next, NextTime: plan.NextTime, Goes: uint64(plan.Next - plan.Floor),
	})
	return nil
}

func firstSet(a, otherwise uint64) uint64 {
	if a != 0 {
		return a
	}
	return otherwise
}
