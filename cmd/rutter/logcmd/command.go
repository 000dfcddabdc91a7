package logcmd

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// Command is `rutter log`.
func Command() *cli.Command {
	flags := []cli.Flag{
		term.ServersFlag(), term.OutputFlag("table", "json", "ndjson"),
		&cli.StringFlag{Name: "kind", Usage: "only events of objects of this `KIND`: nic_tag, network, nic, server, vm or vmm"},
		&cli.StringFlag{Name: "object", Usage: "only events of the object with this `ID`"},
		&cli.StringFlag{Name: "cn", Usage: "only what the CN with this `UUID` is concerned by"},
		&cli.StringFlag{Name: "vnet", Usage: "only events on the vnet with this `NUMBER`"},
	}
	return &cli.Command{
		Name: "log", Usage: "read the log", Category: "The log",
		Description: term.Examples("rutter log tail -n 20 --follow", "rutter log show --after 1042 --kind nic", "rutter log show 1042 -o json"),
		Subcommands: []*cli.Command{
			{
				Name: "tail", Usage: "the last entries, and with --follow what comes", Action: logTail,
				Flags: append(flags,
					&cli.Uint64Flag{Name: "lines", Aliases: []string{"n"}, Value: 20, Usage: "`N` entries back from the end"},
					&cli.BoolFlag{Name: "follow", Usage: "go on with what comes"}),
				Description: term.Examples("rutter log tail", "rutter log tail -n 5 --follow --kind nic", "rutter log tail --follow -o ndjson",
					"rutter log tail --follow --cn 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01   # exactly what that CN is sent"),
			},
			{
				Name: "show", Usage: "entries from a place on, or one by its seq", ArgsUsage: "[SEQ]", Action: logShow,
				Flags: append(flags,
					&cli.Uint64Flag{Name: "after", Usage: "entries behind this `SEQ`"},
					&cli.Uint64Flag{Name: "limit", Usage: "at most `N` entries; 0 for all"}),
				Description: term.Examples("rutter log show 1042", "rutter log show --after 1000 --limit 50 --cn 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"),
			},
		},
	}
}

// logQuery reads the filters, and refuses what cannot be meant.
func logQuery(c *cli.Context) (url.Values, error) {
	query := url.Values{}
	if kind := c.String("kind"); kind != "" {
		if _, err := log.ParseKind(kind); err != nil {
			return nil, term.Usagef("--kind: %w", err)
		}
	}
	if cn := c.String("cn"); cn != "" {
		if _, err := log.ParseUUID(cn); err != nil {
			return nil, term.Usagef("--cn: %w", err)
		}
	}
	if vnet := c.String("vnet"); vnet != "" {
		if _, err := log.ParseScope("vnet:" + vnet); err != nil {
			return nil, term.Usagef("--vnet: %w", err)
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
	if err := term.NoArguments(c); err != nil {
		return err
	}
	query, err := logQuery(c)
	if err != nil {
		return err
	}
	api, err := term.NewClient(c)
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
			return term.Usagef("--cn: %w", err)
		}
		return tailCN(c, api, uuid, after)
	}
	return Print(c, api, client.LogQuery{After: after, Follow: c.Bool("follow"), Query: query})
}

func logShow(c *cli.Context) error {
	query, err := logQuery(c)
	if err != nil {
		return err
	}
	after, limit := log.Seq(c.Uint64("after")), c.Uint64("limit")
	if c.NArg() > 1 || c.NArg() == 1 && (c.IsSet("after") || c.IsSet("limit")) {
		return term.Usagef("want one SEQ, or --after and --limit")
	}
	if c.NArg() == 1 {
		seq, err := log.ParseSeq(c.Args().First())
		if err != nil || seq == 0 {
			return term.Usagef("%q: want the seq of an entry, from 1", c.Args().First())
		}
		after, limit = seq-1, 1
	}
	if limit > 0 {
		query.Set("limit", strconv.FormatUint(limit, 10))
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	return Print(c, api, client.LogQuery{After: after, Query: query})
}

// Print prints entries as they come, each in one write: an interrupt leaves
// no half line.
func Print(c *cli.Context, api *client.Client, q client.LogQuery) error {
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
