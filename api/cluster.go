package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"rutter/api/rest"
	"rutter/log"
)

// getCluster answers GET /cluster: the cluster as this server sees it.
func (s *Server) getCluster(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r); err != nil {
		return err
	}
	setSeq(w, s.store.Head().Seq)
	rest.WriteJSON(w, r, http.StatusOK, s.store.Status())
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
func (s *Server) member(r *http.Request) (f memberForm, err error) {
	if s.cfg.Cluster == nil {
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
func (s *Server) addMember(w http.ResponseWriter, r *http.Request) error {
	f, err := s.member(r)
	if err != nil {
		return err
	}
	if f.ID == "" || f.Address == "" {
		return rest.BadParameter("id", log.ElementMissing, `send {"id": "s4", "address": "10.0.0.4:7421"}`, "a member needs id and address (of its raft port)")
	}
	return s.cluster(w, r, func(ctx context.Context) error {
		if f.NonVoter {
			return s.cfg.Cluster.AddNonvoter(ctx, f.ID, f.Address)
		}
		return s.cfg.Cluster.AddVoter(ctx, f.ID, f.Address)
	})
}

// promote answers POST /cluster/members/ID/promote.
func (s *Server) promote(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.member(r); err != nil {
		return err
	}
	return s.cluster(w, r, func(ctx context.Context) error { return s.cfg.Cluster.Promote(ctx, r.PathValue("id")) })
}

// rebuild answers POST /cluster/members/ID/rebuild.
func (s *Server) rebuild(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.member(r); err != nil {
		return err
	}
	return s.cluster(w, r, func(ctx context.Context) error { return s.cfg.Cluster.RebuildMember(ctx, r.PathValue("id")) })
}

// removeMember answers DELETE /cluster/members/ID.
func (s *Server) removeMember(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.member(r); err != nil {
		return err
	}
	return s.cluster(w, r, func(ctx context.Context) error { return s.cfg.Cluster.Remove(ctx, r.PathValue("id")) })
}

// transfer answers POST /cluster/transfer.
func (s *Server) transfer(w http.ResponseWriter, r *http.Request) error {
	f, err := s.member(r)
	if err != nil {
		return err
	}
	return s.cluster(w, r, func(ctx context.Context) error { return s.cfg.Cluster.Transfer(ctx, f.ID) })
}

// cluster does something to the cluster, and answers with what it is then.
func (s *Server) cluster(w http.ResponseWriter, r *http.Request, do func(context.Context) error) error {
	if err := s.changeCluster(r, do); err != nil {
		return err
	}
	rest.WriteJSON(w, r, http.StatusOK, s.store.Status())
	return nil
}

// changeCluster does something to the cluster.
func (s *Server) changeCluster(r *http.Request, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.Context(), waitTime)
	defer cancel()
	err := do(ctx)
	if errors.Is(err, ErrNoLeader) {
		return err
	}
	if err != nil {
		return rest.Fail(http.StatusConflict, rest.CodeBadRequest, "look at GET /cluster, then try again", "the cluster did not take it: %v", err)
	}
	s.logger.Warn("cluster changed", "method", r.Method, "path", r.URL.Path, "actor", s.guard.Actor(r))
	return nil
}
