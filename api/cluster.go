package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"rutter/api/auth/guard"
	"rutter/api/backend"
	"rutter/api/internal/rest"
	"rutter/log"
)

// Cluster changes the members of the cluster. All methods may be called on any server.
type Cluster interface {
	AddVoter(ctx context.Context, id, address string) error
	// AddNonvoter adds a server that follows without a vote; Promote gives it a vote.
	AddNonvoter(ctx context.Context, id, address string) error
	Promote(ctx context.Context, id string) error
	// RebuildMember makes the server id replace its state by that of another server. It
	// returns when the rebuild has begun.
	RebuildMember(ctx context.Context, id string) error
	Remove(ctx context.Context, id string) error
	// Transfer transfers the leadership to id, or to a suitable server if id is "".
	Transfer(ctx context.Context, id string) error
}

// clusterRoutes are the paths of the cluster itself: its members, its retention, and
// copies of its store.
type clusterRoutes struct {
	store    backend.Store
	guard    *guard.Guard
	read     *backend.Reader
	cluster  Cluster   // nil: membership cannot be changed
	retainer Retainer  // nil: retention cannot be changed
	backups  Backups   // nil: there are no snapshots
	schedule Scheduled // nil: no backups are made
	upgrader Upgrader  // nil: there are no feature versions
	// directory is Config.Directory.
	directory func(context.Context) []Place
	logger    *slog.Logger
}

func (c *clusterRoutes) routes() []rest.Route {
	return []rest.Route{
		{Method: "GET", Pattern: "/cluster", Serve: c.getCluster},
		{Method: "GET", Pattern: "/cluster/servers", Serve: c.getServers},
		{Method: "POST", Pattern: "/cluster/members", Serve: c.addMember},
		{Method: "DELETE", Pattern: "/cluster/members/{id}", Serve: c.removeMember},
		{Method: "POST", Pattern: "/cluster/members/{id}/promote", Serve: c.promote},
		{Method: "POST", Pattern: "/cluster/members/{id}/rebuild", Serve: c.rebuild},
		{Method: "POST", Pattern: "/cluster/transfer", Serve: c.transfer},
		{Method: "GET", Pattern: "/cluster/retention", Serve: c.getRetention},
		{Method: "PUT", Pattern: "/cluster/retention", Serve: c.putRetention},
		{Method: "GET", Pattern: "/cluster/features", Serve: c.getFeatures},
		{Method: "POST", Pattern: "/cluster/finalize", Serve: c.finalize},
		{Method: "GET", Pattern: "/snapshot", Serve: c.backup},
		{Method: "GET", Pattern: "/snapshot/schedule", Serve: c.getSchedule},
		{Method: "POST", Pattern: "/snapshot/schedule", Serve: c.runSchedule},
	}
}

// getCluster answers GET /cluster: the cluster as this server sees it.
func (c *clusterRoutes) getCluster(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r); err != nil {
		return err
	}
	rest.SetSeq(w, c.store.Head().Seq)
	rest.WriteJSON(w, r, http.StatusOK, c.store.Status())
	return nil
}

// Place is where the API of a server is.
type Place struct {
	ID     string `json:"id"`
	Peer   string `json:"address"` // of its peer port
	Voter  bool   `json:"voter"`   // false: a replica, which follows without a vote
	Leader bool   `json:"leader"`
	// Zone is the server's, as it said itself; "": it has none, or never said it.
	Zone string `json:"zone,omitempty"`
	// Seq is the head of the server's log, 0 if it did not say it now. Lag is how far it is
	// behind the leader, in nanoseconds; 0 of a server with a vote.
	Seq log.Seq       `json:"seq,omitempty"`
	Lag time.Duration `json:"replica_lag_ns,omitempty"`
	// API is the base URL, as the server itself said; "" if it never did.
	API string `json:"api,omitempty"`
	// Problem says why the server did not say it now.
	Problem string `json:"problem,omitempty"`
}

// getServers answers GET /cluster/servers.
func (c *clusterRoutes) getServers(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r); err != nil {
		return err
	}
	if c.directory == nil {
		return rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "ask a server of a cluster", "this server knows no others")
	}
	rest.WriteJSON(w, r, http.StatusOK, c.directory(r.Context()))
	return nil
}

// memberForm is the body of POST /cluster/members and /cluster/transfer.
type memberForm struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	// NonVoter: the server follows without a vote until it is promoted.
	NonVoter bool `json:"non_voter"`
}

// member reads the body; an empty one is an empty form.
func (c *clusterRoutes) member(r *http.Request) (f memberForm, err error) {
	if c.cluster == nil {
		return f, rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "ask a server of a cluster", "this server's membership cannot be changed")
	}
	if _, err := rest.Query(r); err != nil {
		return f, err
	}
	body, err := rest.ReadBody(r)
	if err != nil || len(body) == 0 {
		return f, err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return f, rest.BadParameter("body", log.ElementInvalid, `send {"id": "s4", "address": "10.0.0.4:7421"}`, "the body is not a member: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return f, rest.BadParameter("body", log.ElementInvalid, "send one JSON object", "text after the member")
	}
	return f, nil
}

// addMember answers POST /cluster/members.
func (c *clusterRoutes) addMember(w http.ResponseWriter, r *http.Request) error {
	f, err := c.member(r)
	if err != nil {
		return err
	}
	if f.ID == "" || f.Address == "" {
		return rest.BadParameter("id", log.ElementMissing, `send {"id": "s4", "address": "10.0.0.4:7421"}`, "a member needs id and address (of its raft port)")
	}
	return c.apply(w, r, func(ctx context.Context) error {
		if f.NonVoter {
			return c.cluster.AddNonvoter(ctx, f.ID, f.Address)
		}
		return c.cluster.AddVoter(ctx, f.ID, f.Address)
	})
}

// promote answers POST /cluster/members/ID/promote.
func (c *clusterRoutes) promote(w http.ResponseWriter, r *http.Request) error {
	if _, err := c.member(r); err != nil {
		return err
	}
	return c.apply(w, r, func(ctx context.Context) error { return c.cluster.Promote(ctx, r.PathValue("id")) })
}

// rebuild answers POST /cluster/members/ID/rebuild.
func (c *clusterRoutes) rebuild(w http.ResponseWriter, r *http.Request) error {
	if _, err := c.member(r); err != nil {
		return err
	}
	return c.apply(w, r, func(ctx context.Context) error { return c.cluster.RebuildMember(ctx, r.PathValue("id")) })
}

// removeMember answers DELETE /cluster/members/ID.
func (c *clusterRoutes) removeMember(w http.ResponseWriter, r *http.Request) error {
	if _, err := c.member(r); err != nil {
		return err
	}
	return c.apply(w, r, func(ctx context.Context) error { return c.cluster.Remove(ctx, r.PathValue("id")) })
}

// transfer answers POST /cluster/transfer.
func (c *clusterRoutes) transfer(w http.ResponseWriter, r *http.Request) error {
	f, err := c.member(r)
	if err != nil {
		return err
	}
	return c.apply(w, r, func(ctx context.Context) error { return c.cluster.Transfer(ctx, f.ID) })
}

// apply does something to the cluster, and answers with its new state.
func (c *clusterRoutes) apply(w http.ResponseWriter, r *http.Request, do func(context.Context) error) error {
	if err := c.changeCluster(r, do); err != nil {
		return err
	}
	rest.WriteJSON(w, r, http.StatusOK, c.store.Status())
	return nil
}

// changeCluster does something to the cluster.
func (c *clusterRoutes) changeCluster(r *http.Request, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.Context(), backend.WaitTime)
	defer cancel()
	err := do(ctx)
	if errors.Is(err, backend.ErrNoLeader) {
		return err
	}
	if err != nil {
		return rest.Fail(http.StatusConflict, rest.CodeBadRequest, "look at GET /cluster, then try again", "the cluster did not take it: %v", err)
	}
	c.logger.Warn("cluster changed", "method", r.Method, "path", r.URL.Path, "actor", c.guard.Actor(r))
	return nil
}

// Retainer reads and sets how much of the log a cluster keeps.
type Retainer interface {
	// PlanRetention says what r would delete now on this server. nil means the
	// retention that is set. It changes nothing.
	PlanRetention(r *Retention) (RetentionPlan, error)
	// SetRetention changes what the cluster keeps.
	SetRetention(ctx context.Context, r Retention) error
}

// Retention keeps entries that are younger than Age or among the newest Events,
// whichever are more. Bytes is the upper bound of both.
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
	Next        log.Seq  // the new floor; Floor if it does not change
	NextTime    log.Time // of the last entry that would be deleted
}

// retentionForm is the body of PUT /cluster/retention. Missing fields keep their
// values.
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

// getRetention answers GET /cluster/retention: what is kept, and with age, events or
// bytes in the query, what those values would delete.
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

// leastRetention is the smallest accepted cap: with less, entries would be deleted
// before followers have read them.
const leastRetention = 64 << 20

// retention answers with the plan for the cluster's retention, changed as f says. With
// set, it sets that retention first.
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

// Backups makes snapshots of the store.
type Backups interface {
	// Backup begins a snapshot that holds at least what this server has applied.
	Backup(ctx context.Context) (Backup, error)
}

// Backup is a snapshot. Its reader must read to the end and close it. It contains its
// own length and checksum.
type Backup struct {
	io.ReadCloser
	Cluster log.UUID
	Seq     log.Seq
	Size    int64
}

// Headers of GET /snapshot.
const headerCluster = "Rutter-Cluster"

// backupBuffer is how much of a snapshot is read and written at once, in bytes.
const backupBuffer = 256 << 10

// backup answers GET /snapshot with the whole store as one file.
func (c *clusterRoutes) backup(w http.ResponseWriter, r *http.Request) error {
	if c.backups == nil {
		return rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "ask a server of a cluster", "this server gives no snapshots")
	}
	p, err := rest.Query(r)
	if err != nil {
		return err
	}
	if err := c.read.Fresh(r, p); err != nil {
		return err
	}
	b, err := c.backups.Backup(r.Context())
	if err != nil {
		return rest.Fail(http.StatusServiceUnavailable, rest.CodeOverloaded, "try again, or another server", "no snapshot now: %v", err)
	}
	defer b.Close()
	// No read deadline: each write of the snapshot has its own deadline.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(b.Size, 10))
	h.Set(headerCluster, b.Cluster.String())
	rest.SetSeq(w, b.Seq)
	if r.Method == http.MethodHead {
		return nil
	}
	c.logger.Info("sending a snapshot", "actor", c.guard.Actor(r), "seq", b.Seq, "bytes", b.Size)
	n, err := copySlowly(w, b)
	if err != nil || n != b.Size {
		// The length was announced, so the client sees that the snapshot is cut off.
		c.logger.Warn("a snapshot was not sent whole", "bytes", n, "of", b.Size, "error", err)
	}
	return nil
}

// copySlowly copies as long as each piece makes progress.
func copySlowly(w http.ResponseWriter, r io.Reader) (n int64, err error) {
	control := http.NewResponseController(w)
	buf := make([]byte, backupBuffer)
	for {
		k, err := r.Read(buf)
		_ = control.SetWriteDeadline(time.Now().Add(rest.AnswerTime))
		written, writeErr := w.Write(buf[:k])
		n += int64(written)
		if writeErr != nil {
			return n, writeErr
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}
