package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/log"
	"rutter/varp"
)

// logCommand reads the log.
func logCommand() *cli.Command {
	flags := []cli.Flag{
		serversFlag(), outputFlag(),
		&cli.StringFlag{Name: "kind", Usage: "only events of objects of this `KIND`: nic_tag, network, nic, server, vm or vmm"},
		&cli.StringFlag{Name: "object", Usage: "only events of the object with this `ID`"},
		&cli.StringFlag{Name: "cn", Usage: "only what the CN with this `UUID` is concerned by"},
		&cli.StringFlag{Name: "vnet", Usage: "only events on the vnet with this `NUMBER`"},
	}
	return &cli.Command{
		Name: "log", Usage: "read the log", Category: "The log",
		Description: examples("rutter log tail -n 20 --follow", "rutter log show --after 1042 --kind nic", "rutter log show 1042 -o json"),
		Subcommands: []*cli.Command{
			{
				Name: "tail", Usage: "the last entries, and with --follow what comes", Action: logTail,
				Flags: append(flags,
					&cli.Uint64Flag{Name: "lines", Aliases: []string{"n"}, Value: 20, Usage: "`N` entries back from the end"},
					&cli.BoolFlag{Name: "follow", Usage: "go on with what comes"}),
				Description: examples("rutter log tail", "rutter log tail -n 5 --follow --kind nic", "rutter log tail --follow -o ndjson",
					"rutter log tail --follow --cn 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01   # exactly what that CN is sent"),
			},
			{
				Name: "show", Usage: "entries from a place on, or one by its seq", ArgsUsage: "[SEQ]", Action: logShow,
				Flags: append(flags,
					&cli.Uint64Flag{Name: "after", Usage: "entries behind this `SEQ`"},
					&cli.Uint64Flag{Name: "limit", Usage: "at most `N` entries; 0 for all"}),
				Description: examples("rutter log show 1042", "rutter log show --after 1000 --limit 50 --cn 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"),
			},
		},
	}
}

// logQuery reads the filters, and refuses what cannot be meant.
func logQuery(c *cli.Context) (url.Values, error) {
	query := url.Values{}
	if kind := c.String("kind"); kind != "" {
		if _, err := log.ParseKind(kind); err != nil {
			return nil, usagef("--kind: %w", err)
		}
	}
	if cn := c.String("cn"); cn != "" {
		if _, err := log.ParseUUID(cn); err != nil {
			return nil, usagef("--cn: %w", err)
		}
	}
	if vnet := c.String("vnet"); vnet != "" {
		if _, err := log.ParseScope("vnet:" + vnet); err != nil {
			return nil, usagef("--vnet: %w", err)
		}
	}
	for _, name := range []string{"kind", "object", "cn", "vnet"} {
		if value := c.String(name); value != "" {
			query.Set(name, value)
		}
	}
	return query, nil
}

func logTail(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	query, err := logQuery(c)
	if err != nil {
		return err
	}
	api, err := newClient(c)
	if err != nil {
		return err
	}
	head, err := api.Head(c.Context)
	if err != nil {
		return err
	}
	after := log.Seq(0)
	if back := log.Seq(c.Uint64("lines")); back < head {
		after = head - back
	}
	if cn := c.String("cn"); cn != "" && len(query) == 1 {
		uuid, err := log.ParseUUID(cn)
		if err != nil {
			return usagef("--cn: %w", err)
		}
		return tailCN(c, api, uuid, after)
	}
	return printLog(c, api, client.LogQuery{After: after, Follow: c.Bool("follow"), Query: query})
}

func logShow(c *cli.Context) error {
	query, err := logQuery(c)
	if err != nil {
		return err
	}
	after, limit := log.Seq(c.Uint64("after")), c.Uint64("limit")
	if c.NArg() > 1 || c.NArg() == 1 && (c.IsSet("after") || c.IsSet("limit")) {
		return usagef("want one SEQ, or --after and --limit")
	}
	if c.NArg() == 1 {
		seq, err := log.ParseSeq(c.Args().First())
		if err != nil || seq == 0 {
			return usagef("%q: want the seq of an entry, from 1", c.Args().First())
		}
		after, limit = seq-1, 1
	}
	if limit > 0 {
		query.Set("limit", strconv.FormatUint(limit, 10))
	}
	api, err := newClient(c)
	if err != nil {
		return err
	}
	return printLog(c, api, client.LogQuery{After: after, Query: query})
}

// printLog prints entries as they come, each in one write: an interrupt leaves
// no half line.
func printLog(c *cli.Context, api *client.Client, q client.LogQuery) error {
	for line, err := range api.Log(c.Context, q) {
		if err != nil {
			if c.Context.Err() != nil {
				return nil // the reader has seen enough
			}
			return err
		}
		b := []byte(humanLine(line))
		if c.String("output") != "table" {
			if b, err = json.Marshal(line); err != nil {
				return err
			}
			b = append(b, '\n')
		}
		if _, err := c.App.Writer.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// humanLine is an entry in vminfod's manner (spec/vminfod.md section 5.4): one
// line for each field that changed.
func humanLine(line log.Line) string {
	e := line.Event
	head := fmt.Sprintf("%s #%d %s %s", e.Time, line.Seq, e.Kind, e.ID)
	if e.Action != log.Update {
		return fmt.Sprintf("%s %s  by %s\n", head, e.Action, e.Actor)
	}
	var b strings.Builder
	for _, change := range e.Changed {
		now, _ := log.Field(e.Object, change.Path)
		fmt.Fprintf(&b, "%s %s changed :: %s -> %s  by %s\n", head, change.Path, plainField(change.Path, change.Old), plainField(change.Path, now), e.Actor)
	}
	return b.String()
}

// plain is a value as JSON.
func plain(v log.Value) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// timeFields are the fields of objects that are times, which values keep as numbers.
var timeFields = []string{"created_timestamp", "modified_timestamp", "created", "last_boot", "create_timestamp", "last_modified", "time_updated"}

// plainField is plain, with times as people read them.
func plainField(path string, v log.Value) string {
	if n, ok := v.(int64); ok && n != 0 && slices.Contains(timeFields, path) {
		return plain(log.Time(n).String())
	}
	return plain(v)
}

// lookupCommand asks who has an address.
func lookupCommand() *cli.Command {
	flags := []cli.Flag{serversFlag(), outputFlag(), &cli.StringFlag{Name: "svp", Usage: "ask the SVP server at `ADDRESS` (an agent's, say) in place of a server's API"}}
	return &cli.Command{
		Name: "lookup", Usage: "who has an address on a vnet, and on which CN", Category: "The log",
		Description: examples("rutter lookup vl3 4385813 10.21.12.7", "rutter lookup vl2 4385813 90:b8:d0:10:02:00", "rutter lookup vl3 4385813 fd21:12::7 --svp 127.0.0.1:1296"),
		Subcommands: []*cli.Command{
			{Name: "vl2", Usage: "the underlay address of a MAC", ArgsUsage: "VNET MAC", Flags: flags, Action: func(c *cli.Context) error { return lookUp(c, true) }},
			{Name: "vl3", Usage: "the MAC and underlay address of an IP", ArgsUsage: "VNET IP", Flags: flags, Action: func(c *cli.Context) error { return lookUp(c, false) }},
		},
	}
}

func lookUp(c *cli.Context, vl2 bool) error {
	if c.NArg() != 2 {
		return usagef("want two arguments, %s", c.Command.ArgsUsage)
	}
	scope, err := log.ParseScope("vnet:" + c.Args().Get(0))
	if err != nil {
		return usagef("%q: want a vnet, a number from 0 to %d", c.Args().Get(0), log.MaxVNet)
	}
	var mac log.MAC
	var ip netip.Addr
	if vl2 {
		mac, err = log.ParseMAC(c.Args().Get(1))
	} else {
		ip, err = netip.ParseAddr(c.Args().Get(1))
	}
	if err != nil {
		return usageError{err}
	}
	found, err := findMapping(c, scope.VNet, mac, ip)
	if err != nil {
		return err
	}
	return printOne(c, found, func(w io.Writer) {
		fmt.Fprintf(w, "%s is at %s port %d\n", found.MAC, found.Addr, found.Port)
	})
}

// findMapping asks by MAC, or by ip if that is valid.
func findMapping(c *cli.Context, vnet uint32, mac log.MAC, ip netip.Addr) (client.Mapping, error) {
	if address := c.String("svp"); address != "" {
		return findBySVP(c, address, vnet, mac, ip)
	}
	api, err := newClient(c)
	if err != nil {
		return client.Mapping{}, err
	}
	if ip.IsValid() {
		return api.VL3(c.Context, vnet, ip)
	}
	return api.VL2(c.Context, vnet, mac)
}

func findBySVP(c *cli.Context, address string, vnet uint32, mac log.MAC, ip netip.Addr) (m client.Mapping, err error) {
	svp, err := varp.NewClient(varp.ClientConfig{Servers: []string{address}})
	if err != nil {
		return m, usageError{err}
	}
	defer func() { err = errors.Join(err, svp.Close()) }()
	var at varp.Underlay
	if ip.IsValid() {
		mac, at, err = svp.VL3(c.Context, vnet, ip)
	} else {
		at, err = svp.VL2(c.Context, vnet, mac)
	}
	return client.Mapping{MAC: mac, Addr: at.Addr, Port: at.Port}, err
}
