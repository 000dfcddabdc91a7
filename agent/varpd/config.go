package varpd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"rutter/agent/link/plan"
	"rutter/agent/miss"
	"rutter/log"
	"rutter/varp"
)

// Resolver asks SVP servers; a varp.Client is one. Its methods are called from many
// goroutines at once.
type Resolver interface {
	Ping(ctx context.Context) error
	VL2(ctx context.Context, vnet uint32, mac log.MAC) (varp.Underlay, error)
	VL3(ctx context.Context, vnet uint32, ip netip.Addr) (log.MAC, varp.Underlay, error)
	LogRequest(ctx context.Context, cn netip.Addr, maxBytes int) ([]varp.Record, error)
	LogRemove(ctx context.Context, ids []log.UUID) error
}

// Kernel is what a Daemon programs; link.Netlink is one.
type Kernel interface {
	plan.Kernel
	// NamespaceNumber returns the number that identifies a namespace in misses, and
	// assigns one if there is none.
	NamespaceNumber(name string) (int32, error)
	// Namespaces returns the names of the current VM namespaces. One that is gone when
	// it is read does no harm.
	Namespaces() []string
	// Source returns the address from which the kernel sends to another by the link
	// with an ifindex; 0: by any link.
	Source(device int32, to netip.Addr) (netip.Addr, error)
}

// Config has what a Daemon asks and what it programs. Zero means the default that is
// named with each field.
type Config struct {
	// Resolver answers the questions. Required.
	Resolver Resolver

	// Kernel is read and programmed, by one goroutine. Required.
	Kernel Kernel

	// Watch calls wake when links or namespaces may have changed, until ctx ends.
	// Required.
	Watch func(ctx context.Context, wake func()) error

	// Listen passes the kernel's misses to r, until ctx ends. Required.
	Listen func(ctx context.Context, r miss.Resolver) error

	// Pending returns what the links of a namespace miss now. Required.
	Pending func(namespace string) ([]miss.Miss, error)

	// MaxInFlight bounds the questions in flight. Default 1,024, as many as a
	// varp.Client has on one connection.
	MaxInFlight int

	// MaxWaiting bounds the queued misses. Misses beyond it are dropped, and come again
	// when the kernel asks again. Default 16,384: a VM that scans a /18 fits.
	MaxWaiting int

	// MaxEntries bounds the programmed addresses. Beyond it, the one that was asked
	// longest ago is removed, and asked again when it is missed. Default 65,536.
	MaxEntries int

	// Negative is how long NOTFOUND is kept. Meanwhile the kernel's repeated misses,
	// one each second, cost no question. A shootdown ends it at once. Default 2 s.
	Negative time.Duration

	// RefreshEvery is the age at which an entry is asked again. Default 5 min: with
	// MaxEntries that is 220 questions/s, which portolan can serve.
	RefreshEvery time.Duration

	// PollEvery is the pause before the shootdown log is asked again after an empty
	// answer, plus up to a half at random. Default 1 s; illumos takes 5 to 10 s.
	// Negative: never, for a server that fails on LOG_REQ.
	PollEvery time.Duration

	// CacheTime is how long a server may answer from a cache that its shootdown log does
	// not invalidate. What the log names is asked at once, and again until that time is
	// over; only then is the record acknowledged. Default 10 s, portolan's; negative:
	// the server has none, as Rutter's.
	CacheTime time.Duration

	// Servers returns the state of the servers that Resolver asks, for the status, and
	// for the route by which a VXLAN device without a local address sends. nil: unknown.
	Servers func() []varp.ServerState

	// Greeting bounds the first PING. Default 10 s.
	Greeting time.Duration

	// Logger gets troubles and their ends, once each, and no single entries. Default:
	// none.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 1024)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, 16384)
	c.MaxEntries = cmp.Or(c.MaxEntries, 65536)
	c.Negative = cmp.Or(c.Negative, 2*time.Second)
	c.RefreshEvery = cmp.Or(c.RefreshEvery, 5*time.Minute)
	c.PollEvery = cmp.Or(c.PollEvery, time.Second)
	c.CacheTime = cmp.Or(c.CacheTime, 10*time.Second)
	c.Greeting = cmp.Or(c.Greeting, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) check() error {
	if c.Resolver == nil || c.Kernel == nil || c.Watch == nil || c.Listen == nil || c.Pending == nil {
		return errors.New("varpd: Config needs Resolver, Kernel, Watch, Listen and Pending: none has a default")
	}
	for _, bound := range []struct {
		name  string
		value int
	}{{"MaxInFlight", c.MaxInFlight}, {"MaxWaiting", c.MaxWaiting}, {"MaxEntries", c.MaxEntries}} {
		if bound.value < 0 {
			return fmt.Errorf("varpd: Config.%s is %d: want at least 1, or 0 for the default", bound.name, bound.value)
		}
	}
	if c.Negative < 0 || c.RefreshEvery < 0 || c.Greeting < 0 {
		return errors.New("varpd: Config has a negative time: want a positive one, or 0 for the default")
	}
	return nil
}
