package importcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"rutter/log"
)

// Bounds of reading a NAPI.
const (
	pageSize     = 1000             // NAPI's most for one list (spec/napi.md section 3.2)
	maxPage      = 64 << 20         // bytes of one answer
	atOnce       = 4                // requests under way: NAPI is one process, which others use too
	tries        = 5                // of one request, with pauses between
	firstPause   = time.Second      // doubled with each
	answerTime   = 60 * time.Second // for one request
	maxErrorText = 300              // bytes of an answer that are shown
)

// progress reports n of all. all is 0 if it is unknown.
type progress func(what string, n, all int)

// napiReader reads a running NAPI.
type napiReader struct {
	base  string // without a slash at its end
	http  *http.Client
	pause time.Duration

	mu sync.Mutex // protects what follows
	in *installation
}

// statusError is an answer with an error status.
type statusError struct {
	status int
	text   string
}

// Error implements error.
func (e *statusError) Error() string { return e.text }

// readNAPI reads all objects. Objects that are created or deleted meanwhile may be
// missed. A second run finds them.
func (in *installation) readNAPI(ctx context.Context, base string, client *http.Client, tell progress) error {
	r := &napiReader{base: strings.TrimSuffix(base, "/"), http: client, pause: firstPause, in: in}
	return r.read(ctx, tell)
}

func (r *napiReader) read(ctx context.Context, tell progress) error {
	if err := r.ping(ctx); err != nil {
		return err
	}
	for _, l := range []struct {
		path     string
		kind     log.Kind
		optional bool
	}{
		{"/nic_tags", log.KindNICTag, false},
		{"/networks", log.KindNetwork, false},
		{"/network_pools", log.KindNetworkPool, false},
		{"/nics", log.KindNIC, false},
		{"/aggregations", log.KindAggregation, false},
		{"/routers", log.KindRouter, true},
	} {
		err := r.list(ctx, l.path, l.kind, nil, tell)
		if status := new(statusError); l.optional && errors.As(err, &status) && status.status == http.StatusNotFound {
			continue // most NAPIs do not have it
		}
		if err != nil {
			return err
		}
	}
	if err := r.fabrics(ctx, tell); err != nil {
		return err
	}
	return r.addresses(ctx, tell)
}

// ping checks that there is a NAPI that can answer.
func (r *napiReader) ping(ctx context.Context) error {
	var pong struct {
		Status string `json:"status"`
	}
	body, err := r.get(ctx, "/ping", nil)
	if status := new(statusError); errors.As(err, &status) && status.status == http.StatusNotFound {
		return fmt.Errorf("there is no NAPI at %s (GET /ping: %w): name its base, as in http://napi.my.domain, or that of a server of Rutter with /napi behind", r.base, err)
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, &pong); err != nil || pong.Status != "OK" {
		return fmt.Errorf("NAPI at %s is not ready: GET /ping says %s", r.base, clip(body))
	}
	return nil
}

// list reads all pages of a list. more are fields that its objects do not have
// themselves.
func (r *napiReader) list(ctx context.Context, path string, kind log.Kind, more map[string]json.RawMessage, tell progress) error {
	for offset := 0; ; offset += pageSize {
		query := url.Values{"limit": {strconv.Itoa(pageSize)}, "offset": {strconv.Itoa(offset)}}
		body, err := r.get(ctx, path, query)
		if err != nil {
			return err
		}
		n := 0
		r.mu.Lock()
		err = eachObject(bytes.NewReader(body), func(raw json.RawMessage) error {
			n++
			var theirs map[string]json.RawMessage
			if err := json.Unmarshal(raw, &theirs); err != nil {
				return fmt.Errorf("object %d: %w", n, err)
			}
			for name, value := range more {
				if _, has := theirs[name]; !has {
					theirs[name] = value
				}
			}
			return r.in.take(kind, "", theirs, "", path)
		})
		r.mu.Unlock()
		if err != nil {
			return fmt.Errorf("%s%s: %w", r.base, path, err)
		}
		if tell != nil {
			tell(path, offset+n, 0)
		}
		if n < pageSize {
			return nil
		}
	}
}

// fabrics reads the fabrics of every known owner.
func (r *napiReader) fabrics(ctx context.Context, tell progress) error {
	owners := make(map[log.UUID]bool)
	for _, rec := range r.in.records[log.KindNetwork] {
		for _, owner := range rec.object.(*log.Network).OwnerUUIDs {
			owners[owner] = true
		}
	}
	for _, rec := range r.in.records[log.KindNIC] {
		owners[rec.object.(*log.NIC).OwnerUUID] = true
	}
	delete(owners, log.UUID{})
	var paths []string
	for owner := range owners {
		paths = append(paths, "/fabrics/"+owner.String()+"/vlans")
	}
	if err := r.each(ctx, "/fabrics", paths, log.KindFabricVLAN, tell); err != nil {
		return err
	}
	paths = paths[:0]
	for _, rec := range r.in.records[log.KindFabricVLAN] {
		v := rec.object.(*log.FabricVLAN)
		paths = append(paths, fmt.Sprintf("/fabrics/%s/vlans/%d/networks", v.OwnerUUID, v.VLANID))
	}
	return r.each(ctx, "/fabrics networks", paths, log.KindNetwork, tell)
}

// addresses reads the addresses of every network.
func (r *napiReader) addresses(ctx context.Context, tell progress) error {
	var paths []string
	for _, rec := range r.in.records[log.KindNetwork] {
		paths = append(paths, "/networks/"+rec.object.ID()+"/ips")
	}
	return r.each(ctx, "/networks ips", paths, log.KindIP, tell)
}

// each reads several lists, some at once. A list that is not found is empty: it was
// deleted meanwhile, or its owner has no fabric.
func (r *napiReader) each(ctx context.Context, what string, paths []string, kind log.Kind, tell progress) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	done := 0
	for _, path := range paths {
		g.Go(func() error {
			err := r.list(ctx, path, kind, fieldsOfPath(path), nil)
			if status := new(statusError); errors.As(err, &status) && status.status == http.StatusNotFound {
				err = nil
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			done++
			tell(what, done, len(paths))
			return err
		})
	}
	return g.Wait()
}

// fieldsOfPath are the fields that a path implies for the objects in its list.
func fieldsOfPath(path string) map[string]json.RawMessage {
	if id, ok := strings.CutPrefix(path, "/networks/"); ok {
		id, _, _ = strings.Cut(id, "/")
		return map[string]json.RawMessage{"network_uuid": json.RawMessage(`"` + id + `"`)}
	}
	return nil
}

// get sends one request, and repeats it after a pause if that may help.
func (r *napiReader) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	target := r.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	pause := r.pause
	for try := 1; ; try++ {
		body, err := r.once(ctx, target)
		status := new(statusError)
		if err == nil || errors.As(err, &status) && status.status < 500 && status.status != http.StatusTooManyRequests || try == tries || ctx.Err() != nil {
			return body, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
		pause *= 2
	}
}

func (r *napiReader) once(ctx context.Context, target string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := r.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxPage+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("GET %s: %w", target, err)
	case len(body) > maxPage:
		return nil, fmt.Errorf("GET %s: an answer of more than %d bytes", target, maxPage)
	case response.StatusCode != http.StatusOK:
		return nil, &statusError{response.StatusCode, fmt.Sprintf("GET %s: HTTP %d: %s", target, response.StatusCode, body[:min(len(body), maxErrorText)])}
	}
	return body, nil
}
