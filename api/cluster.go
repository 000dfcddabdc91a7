package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"rutter/api/rest"
	"rutter/log"
)

// clusterRoutes are the paths of the cluster itself: who belongs to it, what it keeps,
// and copies of its store.
type clusterRoutes struct {
	read     *stateReader
	cluster  Cluster  // nil: membership is not changed here
	retainer Retainer // nil: retention is not changed here
	backups  Backups  // nil: there are no snapshots
	logger   *slog.Logger
}

func (c *clusterRoutes) routes() []rest.Route {
	return []rest.Route{
		{Method: "GET", Pattern: "/cluster", Serve: c.getCluster},
		{Method: "POST", Pattern: "/cluster/members", Serve: c.addMember},
		{Method: "DELETE", Pattern: "/cluster/members/{id}", Serve: c.removeMember},
		{Method: "POST", Pattern: "/cluster/members/{id}/promote", Serve: c.promote},
		{Method: "POST", Pattern: "/cluster/members/{id}/rebuild", Serve: c.rebuild},
		{Method: "POST", Pattern: "/cluster/transfer", Serve: c.transfer},
		{Method: "GET", Pattern: "/cluster/retention", Serve: c.getRetention},
		{Method: "PUT", Pattern: "/cluster/retention", Serve: c.putRetention},
		{Method: "GET", Pattern: "/snapshot", Serve: c.backup},
	}
}

// getCluster answers GET /cluster: the cluster as this server sees it.
func (c *clusterRoutes) getCluster(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r); err != nil {
		return err
	}
	rest.SetSeq(w, c.read.store.Head().Seq)
	rest.WriteJSON(w, r, http.StatusOK, c.read.store.Status())
	return nil
}

// memberForm is the body of POST /cluster/members and /cluster/transfer.
type memberForm struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	// NonVoter: it follows without a vote until it is promoted.
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

// apply does something to the cluster, and answers with what it is then.
func (c *clusterRoutes) apply(w http.ResponseWriter, r *http.Request, do func(context.Context) error) error {
	if err := c.changeCluster(r, do); err != nil {
		return err
	}
	rest.WriteJSON(w, r, http.StatusOK, c.read.store.Status())
	return nil
}

// changeCluster does something to the cluster.
func (c *clusterRoutes) changeCluster(r *http.Request, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.Context(), waitTime)
	defer cancel()
	err := do(ctx)
	if errors.Is(err, ErrNoLeader) {
		return err
	}
	if err != nil {
		return rest.Fail(http.StatusConflict, rest.CodeBadRequest, "look at GET /cluster, then try again", "the cluster did not take it: %v", err)
	}
	c.logger.Warn("cluster changed", "method", r.Method, "path", r.URL.Path, "actor", c.read.guard.Actor(r))
	return nil
}
