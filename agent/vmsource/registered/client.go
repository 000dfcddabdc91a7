package registered

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"rutter/log"
)

// DefaultSocket is the agent's Unix socket.
const DefaultSocket = "/run/rutter/agent.sock"

// maxAnswer bounds the answers that a Client reads, in bytes.
const maxAnswer = 64 << 20

// ErrNoAgent: no agent answers at the socket. Nothing was changed, as far as is known.
var ErrNoAgent = errors.New("no agent answers")

// Client registers VMs at the agent of this compute node. Its methods may be called from
// any goroutine. Their errors are an *Error, which the agent answered, or an ErrNoAgent.
type Client struct {
	// Source is the name of the source, such as cni.
	Source string
	// Socket is the path of the agent's socket; "": DefaultSocket.
	Socket string
}

// Wait says what a Put waits for.
type Wait struct {
	For    string        // WaitNone, WaitNode or WaitFabric; "": WaitNone
	Within time.Duration // 0: the agent's default
}

// Put registers a VM, or changes a registration. It may be repeated after any error: the
// same VM and key are the same NIC.
func (c *Client) Put(ctx context.Context, id log.UUID, r Registration, wait Wait) (vm VM, err error) {
	query := url.Values{"wait": {cmp.Or(wait.For, WaitNone)}}
	if wait.Within > 0 {
		query.Set("within", strconv.FormatFloat(wait.Within.Seconds(), 'f', -1, 64))
	}
	err = c.ask(ctx, http.MethodPut, "/"+id.String()+"?"+query.Encode(), r, &vm)
	return vm, err
}

// Delete removes a registration, with its NICs. It succeeds while no server answers, and
// for a VM that is not registered.
func (c *Client) Delete(ctx context.Context, id log.UUID) error {
	return c.ask(ctx, http.MethodDelete, "/"+id.String(), nil, nil)
}

// DeleteNIC removes one NIC of a VM. It succeeds while no server answers, and for a NIC
// that is not registered.
func (c *Client) DeleteNIC(ctx context.Context, id log.UUID, key string) error {
	return c.ask(ctx, http.MethodDelete, "/"+id.String()+"/nics/"+url.PathEscape(key), nil, nil)
}

// Get returns a registered VM. One that is not registered is an *Error of CodeUnknown.
func (c *Client) Get(ctx context.Context, id log.UUID) (vm VM, err error) {
	err = c.ask(ctx, http.MethodGet, "/"+id.String(), nil, &vm)
	return vm, err
}

// List returns the VMs that the source has registered, by UUID.
func (c *Client) List(ctx context.Context) (vms []VM, err error) {
	err = c.ask(ctx, http.MethodGet, "", nil, &vms)
	return vms, err
}

// ask sends one request, and reads the answer into answer unless that is nil.
func (c *Client) ask(ctx context.Context, method, path string, body, answer any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return fmt.Errorf("registered: %w", err)
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://agent/vmsource/"+url.PathEscape(c.Source)+"/vms"+path, bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("registered: %w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	socket := cmp.Or(c.Socket, DefaultSocket)
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return fmt.Errorf("%w at %s: %w (does rutter agent run? its --socket names the path)", ErrNoAgent, socket, err)
	}
	defer response.Body.Close()
	text, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%w at %s: %w", ErrNoAgent, socket, err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		failed := &Error{}
		if err := json.Unmarshal(text, failed); err != nil || failed.Code == "" {
			return &Error{Code: CodeInternal, Message: fmt.Sprintf("%s: %s", response.Status, bytes.TrimSpace(text))}
		}
		return failed
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("%w as one does at %s: %w", ErrNoAgent, socket, err)
	}
	return nil
}
