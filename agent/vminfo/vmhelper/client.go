package vmhelper

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmrun"
	"rutter/agent/vmsource"
	"rutter/log"
)

// DefaultSocket is where a helper serves.
const DefaultSocket = "/run/rutter-vms/vms.sock"

// Bounds of a Client.
const (
	// patience is how long a request waits for a helper that does not answer at all: systemd
	// starts one that ended again after 1 s.
	patience = 5 * time.Second
	// dialAgain is the pause between two attempts to reach it.
	dialAgain = 50 * time.Millisecond
	// maxLost bounds the attempts of a request whose connection is lost before its answer: one
	// that ends the helper each time is given up.
	maxLost = 3
	// editWithin bounds the requests that only write a manifest.
	editWithin = 15 * time.Second
	// maxAsks bounds the requests of one client under way. It leaves room under the helper's
	// maxOfProcess for those that ask how it is.
	maxAsks = maxOfProcess - 8
)

// ErrNoHelper: no helper answers, or it went away before it did. What was asked for is not
// known to be done.
var ErrNoHelper = fmt.Errorf("%w: the helper that runs this node's VMs (rutter vms)", vmsource.ErrUnreachable)

var (
	_ vmsource.Control  = (*Client)(nil)
	_ vmsource.Preparer = (*Client)(nil)
)

// ClientConfig configures a Client. Socket and Reader must be given.
type ClientConfig struct {
	Socket string
	// Reader reads the manifests, and says which folders the helper must have. It is never
	// asked to run anything.
	Reader  *vmrun.Runner
	Version string       // of this program
	Logger  *slog.Logger // nil discards
	// ProbeEvery is how often Run asks whether the helper answers, and ProbeWithin how long
	// an answer may take. Zeros: defaultProbeEvery, defaultProbeWithin.
	ProbeEvery, ProbeWithin time.Duration
}

// Client asks a helper to run VMs. It does what a vmrun.Runner does, with the same errors,
// and ErrNoHelper. While Run runs, a request to a helper that does not answer fails at once,
// and one that is under way when the helper stops to answer is ended.
type Client struct {
	cfg     ClientConfig
	folders Folders
	asking  chan struct{} // has a token of each request under way

	mu     sync.Mutex // protects what follows
	status Status
	hung   int           // probes without an answer, since the last other result
	ended  chan struct{} // closed when requests under way are to end
}

// NewClient returns a client that has started nothing.
func NewClient(cfg ClientConfig) *Client {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.ProbeEvery = cmp.Or(cfg.ProbeEvery, defaultProbeEvery)
	cfg.ProbeWithin = cmp.Or(cfg.ProbeWithin, defaultProbeWithin)
	return &Client{cfg: cfg, folders: FoldersOf(cfg.Reader), asking: make(chan struct{}, maxAsks), status: Status{Socket: cfg.Socket}, ended: make(chan struct{})}
}

// Manifest returns the manifest of a VM, which this process reads. Error: vmrun.ErrNoVM.
func (c *Client) Manifest(id log.UUID) (vmdoc.Value, error) { return c.cfg.Reader.Manifest(id) }

// Stamp identifies the version of a VM's manifest; "" if there is none.
func (c *Client) Stamp(id log.UUID) string { return c.cfg.Reader.Stamp(id) }

// CheckCgroup is vmrun.Runner's.
func (c *Client) CheckCgroup() error { return c.cfg.Reader.CheckCgroup() }

// Prepare is vmrun.Runner's.
func (c *Client) Prepare(ctx context.Context, id log.UUID) error {
	_, _, err := c.ask(ctx, request{Act: actPrepare, VM: id})
	return err
}

// Start is vmrun.Runner's. A VM that runs when the request had to be sent again has started.
func (c *Client) Start(ctx context.Context, id log.UUID) error {
	_, again, err := c.ask(ctx, request{Act: actStart, VM: id})
	if again && errors.Is(err, vmrun.ErrRunning) {
		return nil
	}
	return err
}

// Stop is vmrun.Runner's.
func (c *Client) Stop(ctx context.Context, id log.UUID, force bool) error {
	_, again, err := c.ask(ctx, request{Act: actStop, VM: id, Force: force})
	if again && errors.Is(err, vmrun.ErrNotRunning) {
		return nil
	}
	return err
}

// Create is vmrun.Runner's.
func (c *Client) Create(v vmdoc.Value) error {
	ctx, cancel := context.WithTimeout(context.Background(), editWithin)
	defer cancel()
	_, again, err := c.ask(ctx, request{Act: actCreate, Manifest: v.AppendJSON(nil)})
	if again && errors.Is(err, vmrun.ErrExists) {
		if id, bad := log.ParseUUID(v.Text("uuid")); bad == nil {
			if there, bad := c.Manifest(id); bad == nil && vmrun.Made(there, v) {
				return nil
			}
		}
	}
	return err
}

// Edit is vmrun.Runner's. This process reads the manifest and changes it; the helper writes
// it, unless another program has done so meanwhile.
func (c *Client) Edit(id log.UUID, change func(vmdoc.Value) vmdoc.Value) error {
	ctx, cancel := context.WithTimeout(context.Background(), editWithin)
	defer cancel()
	return c.cfg.Reader.EditBy(id, change, func(before vmrun.Digest, after vmdoc.Value) (bool, error) {
		done, _, err := c.ask(ctx, request{Act: actExchange, VM: id, Before: before[:], Manifest: after.AppendJSON(nil)})
		return done, err
	})
}

// Remove is vmrun.Runner's.
func (c *Client) Remove(ctx context.Context, id log.UUID) error {
	_, again, err := c.ask(ctx, request{Act: actRemove, VM: id})
	if again && errors.Is(err, vmrun.ErrNoVM) {
		return nil
	}
	return err
}

// ask sends a request about a VM until it is answered: again reports that it was sent more
// than once. A helper that ends meanwhile is waited for, within patience.
func (c *Client) ask(ctx context.Context, r request) (done, again bool, err error) {
	select {
	case c.asking <- struct{}{}:
		defer func() { <-c.asking }()
	default:
		return false, false, fmt.Errorf("%w: %d requests of this process are under way", ErrBusy, cap(c.asking))
	}
	folders := c.folders
	r.Folders = &folders
	var until time.Time // zero: the helper was there at the last attempt
	for lost := 0; ; {
		ended, err := c.usable()
		if err != nil {
			return false, again, err
		}
		a, sent, err := c.once(ctx, r, ended)
		switch {
		case err == nil:
			return a.Done, again, a.Error.local()
		case !isAbsent(err) || ctx.Err() != nil:
			return false, again, c.noHelper(ctx, err)
		case sent:
			lost, again, until = lost+1, true, time.Time{}
		}
		if until.IsZero() {
			until = time.Now().Add(patience)
		}
		if lost >= maxLost || time.Now().After(until) {
			return false, again, c.noHelper(ctx, err)
		}
		select {
		case <-time.After(dialAgain):
		case <-ctx.Done():
		}
	}
}

// noHelper is the error about a helper that gave no answer.
func (c *Client) noHelper(ctx context.Context, err error) error {
	return errors.Join(ctx.Err(), fmt.Errorf("%w: %s: %w", ErrNoHelper, c.cfg.Socket, err))
}

var (
	// errLost: the connection ended before the answer.
	errLost = errors.New("it ended before it answered")
	// errHung: the helper's process is there, and does not answer.
	errHung = errors.New("its process is there and stands still")
)

// isAbsent reports whether an error means that no helper is there, or that it ended: a new
// one may come.
func isAbsent(err error) bool {
	return errors.Is(err, errLost) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// once sends a request once. sent reports whether the helper may have got it. ended ends the
// wait for its answer.
func (c *Client) once(ctx context.Context, r request, ended <-chan struct{}) (a answer, sent bool, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", c.cfg.Socket)
	if err != nil {
		return a, false, err
	}
	defer conn.Close()
	if _, err := peerOf(conn); err != nil {
		return a, false, err
	}
	r.Protocol, r.Version = protocol, c.cfg.Version
	text, err := encode(r)
	if err != nil {
		return a, false, err
	}
	over := make(chan struct{})
	defer close(over)
	hung := make(chan struct{})
	go func() {
		select {
		case <-over:
			return
		case <-ended:
			close(hung)
		case <-ctx.Done():
		}
		_ = conn.SetDeadline(time.Unix(1, 0))
	}()
	reply, err := exchange(conn, text)
	if err == nil {
		return decodeAnswer(reply)
	}
	select {
	case <-hung:
		return a, true, errHung
	default:
	}
	if ctx.Err() != nil {
		return a, true, ctx.Err()
	}
	return a, true, fmt.Errorf("%w: %w", errLost, err)
}

// exchange sends a message, and reads the answer. One that comes although the message was
// not taken says why.
func exchange(conn net.Conn, text []byte) ([]byte, error) {
	_, failed := conn.Write(text)
	reply, err := readMessage(conn, MaxAnswer)
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	return reply, nil
}

func decodeAnswer(text []byte) (a answer, sent bool, err error) {
	if err := json.Unmarshal(text, &a); err != nil || a.Protocol < 1 {
		return a, true, fmt.Errorf("%w: what it answered is no answer: %w", ErrRequest, err)
	}
	return a, true, nil
}
