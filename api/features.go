package api

import (
	"context"
	"fmt"
	"net/http"

	"rutter/api/internal/rest"
)

// Upgrader knows the feature versions of the servers, and ends upgrades.
type Upgrader interface {
	// Features asks each server for what it knows.
	Features(ctx context.Context) ClusterFeatures
	// Finalize raises the cluster's version to the highest that all servers know. After
	// that the upgrade cannot be taken back.
	Finalize(ctx context.Context) error
}

// ClusterFeatures is the feature version of a cluster, and what its servers know.
type ClusterFeatures struct {
	Version uint32           `json:"feature_version"` // that all servers agreed on
	Servers []ServerFeatures `json:"servers"`
	// Waiting says why the version is not higher. It is empty if no server knows a higher
	// one.
	Waiting []string `json:"waiting"`
}

// ServerFeatures is what one server knows.
type ServerFeatures struct {
	ID      string `json:"id"`
	Program string `json:"program,omitempty"` // version of its program, if it reports it
	Knows   uint32 `json:"knows"`             // the highest feature version; it also knows all before
	Agrees  uint32 `json:"agrees"`            // to at most this one now
	Error   string `json:"error,omitempty"`   // it did not answer
}

// waits sets Waiting.
func (f *ClusterFeatures) waits() {
	highest := f.Version
	f.Waiting = []string{}
	for _, s := range f.Servers {
		highest = max(highest, s.Knows)
	}
	for _, s := range f.Servers {
		switch {
		case s.Error != "":
			f.Waiting = append(f.Waiting, fmt.Sprintf("%s does not answer, and may know less: start it, or remove it", s.ID))
		case s.Knows < highest:
			f.Waiting = append(f.Waiting, fmt.Sprintf("%s knows version %d at most: upgrade it", s.ID, s.Knows))
		case s.Agrees < s.Knows:
			f.Waiting = append(f.Waiting, fmt.Sprintf("%s waits for rutter cluster finalize (finalize = \"manual\" in its settings)", s.ID))
		}
	}
	if highest > f.Version && len(f.Waiting) == 0 {
		f.Waiting = append(f.Waiting, fmt.Sprintf("version %d comes when all servers have known it for the time of feature-settle, or with rutter cluster finalize", highest))
	}
}

// getFeatures answers GET /cluster/features.
func (c *clusterRoutes) getFeatures(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r); err != nil {
		return err
	}
	return c.writeFeatures(w, r)
}

// finalize answers POST /cluster/finalize.
func (c *clusterRoutes) finalize(w http.ResponseWriter, r *http.Request) error {
	if _, err := rest.Query(r); err != nil {
		return err
	}
	if c.upgrader == nil {
		return rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "ask a server of a cluster", "this server has no feature version")
	}
	if err := c.changeCluster(r, c.upgrader.Finalize); err != nil {
		return err
	}
	return c.writeFeatures(w, r)
}

func (c *clusterRoutes) writeFeatures(w http.ResponseWriter, r *http.Request) error {
	if c.upgrader == nil {
		return rest.Fail(http.StatusNotImplemented, rest.CodeNotHere, "ask a server of a cluster", "this server has no feature version")
	}
	f := c.upgrader.Features(r.Context())
	f.waits()
	rest.WriteJSON(w, r, http.StatusOK, f)
	return nil
}
