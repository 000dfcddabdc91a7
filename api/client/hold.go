package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"rutter/log"
)

// Hold is what a CN holds back of the log, because it would take away too much.
type Hold struct {
	ID string `json:"id"` // empty: its server did not report it
	// Was is the log that the CN continues with; zero: unknown. With seq 0 only the
	// cluster is known.
	Was   log.Cursor `json:"was,omitzero"`
	Log   log.UUID   `json:"log"`   // the cluster whose view is held
	Going uint32     `json:"going"` // links that it would take away
	Links uint32     `json:"links"` // of so many
	Names []string   `json:"names"` // some of them
	Since *time.Time `json:"since,omitempty"`
}

// AcceptHold makes a CN execute what it holds back, if its hold has that id. A refusal
// is a *log.Refusal.
func (c *Client) AcceptHold(ctx context.Context, cn log.UUID, id string) (h Hold, err error) {
	body, err := json.Marshal(map[string]string{"hold": id})
	if err != nil {
		return h, err
	}
	_, err = c.do(ctx, request{method: http.MethodPost, path: "/cns/" + cn.String() + "/accept", body: body}, &h)
	return h, err
}
