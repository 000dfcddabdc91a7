package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"rutter/log"
)

// Hold is what of the log a CN does not do, since it takes too much away.
type Hold struct {
	ID string `json:"id"` // empty: its server did not tell
	// Was is what the CN goes on with; zero: not known. Of seq 0 only the cluster is.
	Was   log.Cursor `json:"was,omitzero"`
	Log   log.UUID   `json:"log"`   // the cluster whose view is held
	Going uint32     `json:"going"` // links that it would take away
	Links uint32     `json:"links"` // of so many
	Names []string   `json:"names"` // some of them
	Since *time.Time `json:"since,omitempty"`
}

// AcceptHold lets a CN take away what it holds back, if that is the hold of that id.
// A refusal is a *log.Refusal.
func (c *Client) AcceptHold(ctx context.Context, cn log.UUID, id string) (h Hold, err error) {
	body, err := json.Marshal(map[string]string{"hold": id})
	if err != nil {
		return h, err
	}
	_, err = c.do(ctx, request{method: http.MethodPost, path: "/cns/" + cn.String() + "/accept", body: body}, &h)
	return h, err
}
