package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Place is where the API of a server of the cluster is, as GET /cluster/servers has it.
type Place struct {
	ID     string `json:"id"`
	Peer   string `json:"address"` // of its peer port
	Voter  bool   `json:"voter"`
	Leader bool   `json:"leader"`
	Zone   string `json:"zone,omitempty"`
	API    string `json:"api"`               // base URL; "" if it is not known
	Error  string `json:"problem,omitempty"` // why the server did not say it now
}

// maxPlaces bounds the answer about places, in bytes.
const maxPlaces = 1 << 20

// Places asks one server, once, where the APIs of all servers of its cluster are.
func (c *Client) Places(ctx context.Context, server string) ([]Place, error) {
	body, err := c.Part(ctx, server, "/cluster/servers", maxPlaces)
	if err != nil {
		return nil, err
	}
	var places []Place
	if err := json.Unmarshal(body, &places); err != nil {
		return nil, fmt.Errorf("client: answer is not as expected: %w", err)
	}
	return places, nil
}

// Part gets what is at path, which may have a query, from one server, once, and returns the
// body unchanged. A server that is not ready answers too: the body of its 503 is returned,
// if it is no error of the API. Errors: those of any answer, and one of more than limit
// bytes.
func (c *Client) Part(ctx context.Context, server, path string, limit int64) ([]byte, error) {
	u, err := url.Parse(strings.TrimSuffix(server, "/"))
	if err != nil {
		return nil, err
	}
	if u.Scheme == "https" && c.cfg.DialTLS == nil {
		return nil, fmt.Errorf("client: server %q needs a certificate: name the folder of yours with --tls-dir or RUTTER_TLS_DIR", server)
	}
	path, text, _ := strings.Cut(path, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		return nil, fmt.Errorf("client: %s: %w", path, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.AttemptTimeout)
	defer cancel()
	defer c.watch(u)()
	response, err := c.send(ctx, u, request{method: http.MethodGet, path: path, query: query})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err != nil {
		return nil, retry{err}
	}
	if int64(len(body)) > limit {
		return nil, fmt.Errorf("client: answer of more than %d bytes", limit)
	}
	plain := strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain")
	if response.StatusCode < 300 || response.StatusCode == http.StatusServiceUnavailable && plain {
		return body, nil
	}
	return nil, answerError(response, body)
}
