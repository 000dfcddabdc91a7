package lookupcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"rutter/api/client"
	"rutter/cmd/rutter/named"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
	"rutter/raftstore/history"
	"rutter/varp"
)

// PastLog is a log at one place, read without a server.
type PastLog interface {
	// Part returns the objects of a part of the state.
	Part(ctx context.Context, part history.Part) (*projections.State, error)
	// Trace says why one VM can or cannot reach another.
	Trace(ctx context.Context, from, to string) (desired.Trace, error)
	io.Closer
}

// OpenPast opens the log that --data names, at the place that --at names.
type OpenPast func(*cli.Context) (PastLog, error)

// Command looks up who has an address.
func Command(open OpenPast) *cli.Command {
	flags := []cli.Flag{
		term.ServersFlag(), output.Flag(),
		&cli.StringFlag{Name: "svp", Usage: "ask the SVP servers at `ADDRESSES` (an agent's, for example), separated by commas, in place of a server's API"},
		term.DataFlag(),
		&cli.StringFlag{Name: "at", Usage: "as it was after the entry `SEQ|TIME`; not with --svp"},
		&cli.DurationFlag{Name: "timeout", Usage: "end the whole command after this `TIME`; without it each lookup after 5s"},
	}
	return &cli.Command{
		Name: "lookup", Usage: "who has an address on a vnet, and on which CN", Category: "The log",
		Description: term.Examples(
			"rutter lookup vl3 4385813 10.21.12.7",
			"rutter lookup vl3 blue 10.21.12.7             # the vnet of the fabric network blue",
			"rutter lookup vl2 4385813 90:b8:d0:10:02:00",
			"rutter lookup vl3 4385813 10.21.12.7 --at 2026-11-21T14:03:00Z",
			"rutter lookup vl3 4385813 10.21.12.7 --data /var/lib/rutter   # of a stopped server",
			"rutter lookup vl3 4385813 10.21.12.7 10.21.12.8 fd21:12::7 --svp 127.0.0.1:1296",
			"rutter lookup vl3 4385813 10.21.12.7 --svp svp.example.com:1296,10.0.0.2:1296 --timeout 1s",
		),
		Subcommands: []*cli.Command{
			{
				Name: "vl2", Usage: "the underlay addresses of MACs", ArgsUsage: "VNET|NETWORK MAC ...", Flags: flags, Action: func(c *cli.Context) error { return lookUp(c, open, true) },
				Description: term.Examples("rutter lookup vl2 4385813 90:b8:d0:10:02:00", "rutter lookup vl2 blue 90:b8:d0:10:02:00"),
			},
			{
				Name: "vl3", Usage: "the MACs and underlay addresses of IPs", ArgsUsage: "VNET|NETWORK IP ...", Flags: flags, Action: func(c *cli.Context) error { return lookUp(c, open, false) },
				Description: term.Examples("rutter lookup vl3 4385813 10.21.12.7", "rutter lookup vl3 4385813 10.21.12.7 10.21.12.8 fd21:12::7 --svp 127.0.0.1:1296"),
			},
		},
	}
}

// query is one question: by MAC, or by ip if that is valid.
type query struct {
	text string
	vnet uint32
	mac  log.MAC
	ip   netip.Addr
}

// lookupsAtOnce bounds the questions under way.
const lookupsAtOnce = 256

// defaultTimeout bounds each lookup without --timeout.
const defaultTimeout = 5 * time.Second

func timeoutOf(c *cli.Context) time.Duration { return cmp.Or(c.Duration("timeout"), defaultTimeout) }

// errNotFound: no NIC has the address.
var errNotFound = errors.New("nobody has it")

func queriesOf(c *cli.Context, open OpenPast, vl2 bool) ([]query, error) {
	if c.NArg() < 2 {
		return nil, term.Usagef("want two arguments or more, %s", c.Command.ArgsUsage)
	}
	vnet, err := vnetOf(c, open, c.Args().First())
	if err != nil {
		return nil, err
	}
	var queries []query
	for _, text := range c.Args().Tail() {
		q := query{text: text, vnet: vnet}
		if vl2 {
			q.mac, err = log.ParseMAC(text)
		} else {
			if q.ip, err = netip.ParseAddr(text); err != nil {
				err = fmt.Errorf("%q: want an IP address, as in 10.21.12.7", text)
			}
		}
		if err != nil {
			return nil, term.UsageError{Err: err}
		}
		queries = append(queries, q)
	}
	return queries, nil
}

// vnetOf returns the vnet that an argument names, by its number or by a fabric network on
// it, which is looked up where the addresses are.
func vnetOf(c *cli.Context, open OpenPast, text string) (uint32, error) {
	return named.VNet(text, func(kind log.Kind, text string) (client.Named, error) {
		switch {
		case c.IsSet("svp"):
			return client.Named{}, term.Usagef("%q: want the number of a vnet: servers of SVP do not know the names of networks", text)
		case c.IsSet("data"):
			at, err := open(c)
			if err != nil {
				return client.Named{}, err
			}
			state, err := at.Part(c.Context, history.Part{Kinds: []log.Kind{kind}})
			if err = errors.Join(err, at.Close()); err != nil {
				return client.Named{}, err
			}
			return named.InState(state, kind, text)
		}
		at, err := term.MomentText(c.Context, c.String("at"))
		if err != nil {
			return client.Named{}, err
		}
		api, err := term.NewClient(c)
		if err != nil {
			return client.Named{}, err
		}
		defer api.Close()
		return named.At(c.Context, api, kind, text, at)
	})
}

func lookUp(c *cli.Context, open OpenPast, vl2 bool) (err error) {
	queries, err := queriesOf(c, open, vl2)
	if err != nil {
		return err
	}
	find, done, err := finder(c, open)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	found, absent := make([]client.Mapping, len(queries)), make([]error, len(queries))
	g, ctx := errgroup.WithContext(c.Context)
	g.SetLimit(lookupsAtOnce)
	for i, q := range queries {
		g.Go(func() error {
			bounded, cancel := context.WithTimeout(ctx, timeoutOf(c))
			defer cancel()
			var err error
			var refusal *log.Refusal
			switch found[i], err = find(bounded, q); {
			case errors.Is(err, varp.ErrNotFound):
				absent[i] = fmt.Errorf("%s on vnet %d: %w", q.text, q.vnet, errNotFound)
			case errors.As(err, &refusal):
				absent[i] = err // the same error for each
			default:
				return err
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, m := range found {
		if absent[i] != nil {
			continue
		}
		if err := output.One(c, m, func(w io.Writer) {
			if len(found) > 1 {
				output.Printf(w, "%s: ", queries[i].text)
			}
			output.Printf(w, "%s is at %s port %d\n", m.MAC, m.Addr, m.Port)
		}); err != nil {
			return err
		}
	}
	return errors.Join(absent...)
}

// finder returns a function that looks up, and one that closes it.
func finder(c *cli.Context, open OpenPast) (find func(context.Context, query) (client.Mapping, error), done func() error, err error) {
	addresses := c.String("svp")
	if c.IsSet("data") {
		if addresses != "" {
			return nil, nil, term.Usagef("--data and --svp exclude each other")
		}
		return offlineFinder(c, open)
	}
	if addresses == "" {
		at, err := term.MomentText(c.Context, c.String("at"))
		if err != nil {
			return nil, nil, err
		}
		api, err := term.NewClient(c)
		return func(ctx context.Context, q query) (client.Mapping, error) {
			if q.ip.IsValid() {
				return api.VL3At(ctx, q.vnet, q.ip, at)
			}
			return api.VL2At(ctx, q.vnet, q.mac, at)
		}, func() error { return nil }, err
	}
	if c.IsSet("at") {
		return nil, nil, term.Usagef("--at and --svp exclude each other: SVP knows nothing of the past")
	}
	svp, err := varp.NewClient(varp.ClientConfig{Servers: strings.Split(addresses, ","), Timeout: timeoutOf(c)})
	if err != nil {
		return nil, nil, term.UsageError{Err: err}
	}
	return func(ctx context.Context, q query) (m client.Mapping, err error) {
		m.MAC = q.mac
		var at varp.Underlay
		if q.ip.IsValid() {
			m.MAC, at, err = svp.VL3(ctx, q.vnet, q.ip)
		} else {
			at, err = svp.VL2(ctx, q.vnet, q.mac)
		}
		m.Addr, m.Port = at.Addr, at.Port
		if errors.Is(err, varp.ErrNoServer) {
			err = fmt.Errorf("%w: %w", client.ErrUnavailable, err)
		}
		return m, err
	}, svp.Close, nil
}

// offlineFinder looks up in the log that --data names.
func offlineFinder(c *cli.Context, open OpenPast) (find func(context.Context, query) (client.Mapping, error), done func() error, err error) {
	at, err := open(c)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, q query) (m client.Mapping, err error) {
		state, err := at.Part(ctx, history.Part{VNets: []uint32{q.vnet}})
		if err != nil {
			return m, err
		}
		var u projections.Underlay
		var ok bool
		if m.MAC = q.mac; q.ip.IsValid() {
			m.MAC, u, ok = state.VL3(q.vnet, q.ip)
		} else {
			u, ok = state.VL2(q.vnet, q.mac)
		}
		if !ok {
			err = varp.ErrNotFound
		}
		m.Addr, m.Port = u.Addr, u.Port
		return m, err
	}, at.Close, nil
}
