package snoopcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/triton/changefeed/listen"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// ChangefeedCommand is the command of Triton's change feed.
func ChangefeedCommand() *cli.Command {
	return &cli.Command{
		Name: "changefeed", Usage: "Triton's change feed, of these servers or of another publisher", Category: "The log",
		Description: term.Examples("rutter changefeed snoop -r nic -s create,delete,state", "rutter changefeed snoop -r network -s gateway,routes -h napi.dc1.example.com -p 80"),
		Subcommands: []*cli.Command{{
			Name: "snoop", Usage: "print what changes, as lines of JSON, until it is interrupted", Action: changefeedSnoop,
			Description: term.Examples(
				"rutter changefeed snoop -r nic -s create,delete,ip,state",
				"rutter changefeed snoop -r network -s mtu -h 10.0.0.1 -h 10.0.0.2 -h 10.0.0.3   # one after another, with nothing missed",
				"rutter changefeed snoop -r nic -s state | jq .changeItem",
			),
			Flags:    snoopFlags(),
			HideHelp: true, // -h is the host, as changefeedsnoop has it
		}},
	}
}

func snoopFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "resource", Aliases: []string{"r"}, Usage: "`RESOURCE` to listen to, as in nic"},
		&cli.StringSliceFlag{Name: "subresources", Aliases: []string{"s"}, Usage: "`SUB,…` of it: create, delete, or names of fields"},
		&cli.StringSliceFlag{Name: "host", Aliases: []string{"h"}, EnvVars: []string{"RUTTER_SERVER", "RUTTER_SERVERS"}, Value: cli.NewStringSlice("http://127.0.0.1:7420"), Usage: "`HOST`, HOST:PORT or URL; may be given several times, the next one is listened to when one ends"},
		&cli.IntFlag{Name: "port", Aliases: []string{"p"}, Value: 80, Usage: "`PORT` of hosts that are given without one"},
		&cli.StringFlag{Name: "instance", Usage: "`ID` of this listener; a second one of the same id replaces the first (default: one of its own)"},
		&cli.StringFlag{Name: "cursor", Usage: "go on behind `CURSOR`, as the changeItem of an earlier run had it"},
		&cli.BoolFlag{Name: "help", Usage: "show help"},
	}, term.TLSFlags()...)
}

func changefeedSnoop(c *cli.Context) error {
	if c.Bool("help") {
		return cli.ShowSubcommandHelp(c)
	}
	if err := term.NoArguments(c); err != nil {
		return err
	}
	if c.String("resource") == "" || len(c.StringSlice("subresources")) == 0 {
		return term.Usagef("-r and -s are needed, as in -r nic -s create,delete,state")
	}
	keeper, err := term.Keeper(c)
	if err != nil {
		return err
	}
	hosts, scheme := c.StringSlice("host"), "http"
	if keeper != nil {
		if scheme = "https"; !c.IsSet("host") {
			hosts = []string{"127.0.0.1:7420"}
		}
	}
	servers, err := snoopServers(hosts, c.Int("port"), scheme)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	instance := c.String("instance")
	if instance == "" {
		instance = fmt.Sprintf("%s/rutter-snoop-%d", host, os.Getpid())
	}
	logger, err := term.NewLogger(c.App.ErrWriter, "info")
	if err != nil {
		return err
	}
	l, err := listen.New(listen.Config{
		Servers: servers, Instance: instance, Service: "rutter-snoop", Cursor: c.String("cursor"), DialTLS: term.DialServer(keeper),
		Wants:  []listen.Want{{Resource: c.String("resource"), SubResources: c.StringSlice("subresources")}},
		Logger: logger,
	})
	if err != nil {
		return err
	}
	s := snooper{out: c.App.Writer, errs: c.App.ErrWriter, host: host, pid: os.Getpid()}
	err = l.Run(c.Context, listen.Handler{Bootstrap: s.bootstrap, Item: s.item})
	if errors.Is(err, context.Canceled) {
		return nil // the user interrupted it
	}
	return err
}

// snoopServers makes URLs from the given hosts.
func snoopServers(hosts []string, port int, scheme string) (servers []string, err error) {
	for _, host := range hosts {
		if !strings.Contains(host, "://") {
			if _, _, err := net.SplitHostPort(host); err != nil {
				host = net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(port))
			}
			host = scheme + "://" + host
		}
		servers = append(servers, host)
	}
	if port < 1 || port > 65535 {
		return nil, term.Usagef("-p %d: want a port, 1 to 65535", port)
	}
	return servers, nil
}

// snooper prints items as changefeedsnoop does: records of bunyan.
type snooper struct {
	out, errs io.Writer
	host      string
	pid       int
}

// bunyanInfo is bunyan's level for information.
const bunyanInfo = 30

func (s *snooper) item(it listen.Item) error {
	line, err := json.Marshal(struct {
		Name     string          `json:"name"`
		Hostname string          `json:"hostname"`
		PID      int             `json:"pid"`
		Level    int             `json:"level"`
		Item     json.RawMessage `json:"changeItem"`
		Message  string          `json:"msg"`
		Time     time.Time       `json:"time"`
		V        int             `json:"v"`
	}{"changefeedsnoop", s.host, s.pid, bunyanInfo, it.Text, "changeItem", time.Now().UTC().Truncate(time.Millisecond), 0})
	if err != nil {
		return err
	}
	return output.JSONText(s.out, line)
}

// bootstrap says where items come from; that items were missed is for people.
func (s *snooper) bootstrap(b listen.Bootstrap) error {
	text := fmt.Sprintf("rutter: listening to %s from seq %d", b.Server, b.Seq)
	if b.Reason != "" {
		text += "; items were missed: " + b.Reason
	}
	err := output.Printf(s.errs, "%s\n", text)
	return err
}
