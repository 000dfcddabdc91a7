package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"rutter/agent/link"
	"rutter/agent/link/plan"
	"rutter/agent/link/view"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections/desired"
)

// Dialer opens connections for the feed; *client.Client of package api/client does.
type Dialer interface {
	// Feed connects to a server, as Config.Servers names it, and switches the
	// connection to the feed's frames: the server then awaits a hello. It resolves the
	// name at each call. ctx ends the attempt, not the connection.
	Feed(ctx context.Context, server string) (net.Conn, error)
}

// Kernel makes the compute node's kernel match what is wanted. The agent calls it from
// one goroutine.
type Kernel interface {
	// Pass compares the kernel with want, and corrects the differences. It removes
	// something only if complete. Failures of single objects are in the result. An
	// error means that the pass could not be made at all.
	Pass(ctx context.Context, want desired.Links, complete bool) (link.Result, error)
	// Apply brings single entries of the links of the last pass to what delta says, and
	// corrects changes by other programs that it was notified of.
	Apply(ctx context.Context, delta desired.LinksDelta) link.Result
}

// Local is the part of this node that uses the agent's connection as well: its VMs. The
// methods are called from the follower's goroutine and must not block.
type Local interface {
	// Connected: a server feeds this node, and conn sends messages for it until ctx
	// ends. It is called once for each connection, after its first bookmark.
	Connected(ctx context.Context, conn *feed.Conn)
	// Request: the server asks for something; conn sends the response.
	Request(ctx context.Context, conn *feed.Conn, m *feed.Request)
	// Advanced: the state moved to another bookmark (Agent.Object reads it).
	Advanced()
}

// Config configures an Agent. CN, Folder, Servers, Dialer and Kernel must be given.
type Config struct {
	// CN is the compute node on which this agent runs.
	CN log.UUID
	// Folder holds cache.db and belongs to one agent. It is made if it is not there.
	Folder string
	// Servers are the servers to follow, in any form that Dialer takes. The one that
	// worked last is tried first, because it has what the agent needs next in memory. Then
	// comes the next in an order that follows from CN and Zone (package zone), and not from
	// that of this list.
	Servers []string
	Dialer  Dialer
	// Zone is the name of the zone of this node; "": it has none. AskZone, required with a
	// zone, asks a server for its own: see zone.Config. The times are those of zone.Config.
	Zone                              string
	AskZone                           func(ctx context.Context, server string) (zone string, err error)
	ZoneEvery, ZoneSettle, ZoneSpread time.Duration
	// Kernel makes what the agent programs. It is called once, in New, with the numbers
	// of fabric<N> that the cache has, and with a function that saves them. That
	// function returns when they are on disk.
	Kernel func(numbers plan.Numbers, save func(plan.Numbers) error) (Kernel, error)
	// Watch calls changed after each change by another program to this node's part of
	// the kernel. It calls reach when a server may have become reachable (a carrier, an
	// address). It runs until ctx ends, beside Pass; neither function blocks. If nil,
	// only sweeps find such changes.
	Watch func(ctx context.Context, changed, reach func()) error
	// View answers servers that ask what the kernel has on the way from one NIC of this
	// node (rutter trace). It bounds itself how often and how many at once it reads. nil:
	// such requests are refused.
	View func(ctx context.Context, r view.Request) (desired.KernelView, error)
	// Report answers servers that ask what this node says of itself (GET /cns/{id}/status). nil:
	// such requests are refused. It is called beside the follower, once at a time.
	Report func(ctx context.Context) desired.NodeReport
	// Local uses the agent's connection as well; nil: none does.
	Local Local
	// Logger; nil discards.
	Logger *slog.Logger

	// DialTimeout bounds one attempt to connect. Default 3 s:
	// two lost SYNs, which the kernel repeats after 1 s each.
	DialTimeout time.Duration
	// BackoffMin and BackoffMax bound the time between attempts. The time doubles from
	// one to the other, and is shortened by up to half at random so that the nodes of a
	// lost server do not return at the same moment. Defaults 100 ms and 2 s: even
	// with 5 s 10,000 nodes are back within 15 s of a server's end.
	BackoffMin, BackoffMax time.Duration
	// SweepEvery is how often the kernel is compared with what is wanted when no change
	// is known. Default 30 s.
	SweepEvery time.Duration
	// RetryEvery is how soon a pass follows one that left something undone. Single
	// objects that fail again wait longer (package link). Default 500 ms.
	RetryEvery time.Duration

	// Trouble lists what else is wrong on this node, one line each, for the servers. If
	// nil, nothing else is. It must not block.
	Trouble func() []string

	// HoldRemovals is the share of the links, in percent, that a new view of the log
	// may remove without acceptance by an operator. A view that lacks more, and more
	// than ten, is held (see hold.go). Default 10: a restored backup of one hour ago
	// lacks at most one in ten where a node changes all its VMs twice a day. Negative:
	// nothing is held, as in a lab whose clusters come and go.
	HoldRemovals int

	// Now returns the time; default time.Now. It names damaged caches and is the lower
	// limit of a new incarnation.
	Now func() time.Time
	// Jitter returns a random duration from 0 up to d. Default: math/rand.
	Jitter func(d time.Duration) time.Duration

	// DiskDelay, if not nil, is called before each operation on the cache that changes it, also by
	// New, with a text for people, and may wait: a simulation makes a disk slow, or hang, with it.
	// It is called under no lock, from several goroutines at once. What it waits counts as time of
	// the operation.
	DiskDelay func(what string)
}

// withDefaults returns c with defaults in place of zeros, or an error about a wrong
// value.
func (c Config) withDefaults() (Config, error) {
	setDuration := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	setDuration(&c.DialTimeout, 3*time.Second)
	setDuration(&c.BackoffMin, 100*time.Millisecond)
	setDuration(&c.BackoffMax, 2*time.Second)
	setDuration(&c.SweepEvery, 30*time.Second)
	setDuration(&c.RetryEvery, 500*time.Millisecond)
	if c.HoldRemovals == 0 {
		c.HoldRemovals = defaultHoldShare
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.DiskDelay == nil {
		c.DiskDelay = func(string) {}
	}
	if c.Jitter == nil {
		c.Jitter = func(d time.Duration) time.Duration { return rand.N(d + 1) }
	}
	return c, c.check()
}

func (c *Config) check() error {
	var wrong error
	refuse := func(is bool, format string, args ...any) {
		if is {
			wrong = errors.Join(wrong, fmt.Errorf("agent: "+format, args...))
		}
	}
	refuse(c.CN.IsZero(), "no compute node: give its UUID")
	refuse(c.Folder == "", "no folder: name one that this agent may keep its cache in")
	refuse(len(c.Servers) == 0, "no servers: name at least one to follow")
	refuse(c.Dialer == nil, "no dialer")
	refuse(c.Kernel == nil, "no kernel")
	refuse(c.DialTimeout < 0 || c.BackoffMin < 0 || c.SweepEvery < 0 || c.RetryEvery < 0, "a time is negative")
	refuse(c.HoldRemovals > 100, "a view cannot take %d percent of the links away", c.HoldRemovals)
	refuse(c.BackoffMax < c.BackoffMin, "the longest backoff %s is shorter than the shortest %s", c.BackoffMax, c.BackoffMin)
	return wrong
}
