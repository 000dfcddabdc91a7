package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"rutter/log"
)

// Named is an object that a name means.
type Named struct {
	Kind  log.Kind `json:"kind"`
	ID    string   `json:"id"`
	Name  string   `json:"name"`
	Owner log.UUID `json:"owner_uuid"`
	By    string   `json:"by"` // id, name, address or prefix
	ETag  string   `json:"etag"`
	VNet  uint32   `json:"vnet_id"` // of a fabric network
}

// Names returns the objects of kinds that a text names, at most as many as a server lists;
// more says that there are others. None is no error. at is a seq or a time; "" is now.
func (c *Client) Names(ctx context.Context, kinds []log.Kind, text, at string) (found []Named, more bool, err error) {
	names := make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = kind.String()
	}
	query := url.Values{"name": {text}, "consistent": {"1"}}
	if len(kinds) > 0 {
		query.Set("kind", strings.Join(names, ","))
	}
	if at != "" {
		query.Set("at", at)
	}
	var answer struct {
		Found []Named `json:"found"`
		More  bool    `json:"more"`
	}
	_, err = c.do(ctx, request{method: http.MethodGet, path: "/names", query: query}, &answer)
	return answer.Found, answer.More, err
}
