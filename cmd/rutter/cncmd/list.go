package cncmd

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/named"
	"rutter/cmd/rutter/objects"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// lastHeardColumn shows when a server last received something from a CN: by its
// session, or by a heartbeat that cn-agent posts. It is the object's last_heartbeat.
var lastHeardColumn = output.Computed("HEARD", func(o map[string]any) string {
	at, err := time.Parse(time.RFC3339, fmt.Sprint(o["last_heartbeat"]))
	if err != nil {
		return "-"
	}
	return max(time.Since(at), 0).Round(time.Second).String() + " ago"
})

// addHeard adds these times to the objects of the CNs.
func addHeard(ctx context.Context, api *client.Client, list []client.Object) error {
	servers, err := api.List(ctx, "/cnapi/servers", url.Values{"extras": {"status"}})
	if err != nil {
		return err
	}
	heard := make(map[string]any, len(servers))
	for _, o := range servers {
		heard[output.Text(o["uuid"])] = o["last_heartbeat"]
	}
	for _, o := range list {
		if at := heard[output.Text(o["uuid"])]; at != nil {
			o["last_heartbeat"] = at
		}
	}
	return nil
}

// sessionColumns are the columns of `rutter cn list` for a CN's session, which is
// "connection" in the object.
var sessionColumns = []output.Column{
	ofSession("SESSION", func(s *client.Session) string {
		switch {
		case s.Gone:
			return "ended"
		case s.Incarnation == 0 && s.Session == 0:
			return "by POST" // cn-agent's heartbeats
		}
		return fmt.Sprintf("%d.%d", s.Incarnation, s.Session)
	}),
	ofSession("SERVER", func(s *client.Session) string { return s.Server }),
	ofSession("SEQ", func(s *client.Session) string { return s.Applied.String() }),
	ofSession("LAG", func(s *client.Session) string { return s.Lag.String() }),
	ofSession("LAG-MS", func(s *client.Session) string { return fmt.Sprint(s.BehindMS) }),
	ofSession("PROGRAMMED", func(s *client.Session) string { return s.Programmed.String() }),
	ofSession("FAILING", func(s *client.Session) string { return fmt.Sprint(s.Failing) }),
	ofSession("DIGEST", digestCell),
	ofSession("LAST-RESET", func(s *client.Session) string { return s.LastReset }),
}

func digestCell(s *client.Session) string {
	switch {
	case s.DigestOK:
		return "ok"
	case s.Mismatches > 0:
		return "differs"
	}
	return ""
}

func ofSession(title string, value func(*client.Session) string) output.Column {
	return output.Computed(title, func(o map[string]any) string {
		s, ok := o["connection"].(*client.Session)
		if !ok || s == nil {
			return "-"
		}
		return output.Text(value(s))
	})
}

// cnList is objects.list with the session of each CN.
func cnList(o objects.Collection) cli.ActionFunc {
	return func(c *cli.Context) error {
		api, list, err := o.Selected(c)
		if err != nil {
			return err
		}
		sessions, err := api.EverySession(c.Context)
		if err != nil {
			output.Printf(c.App.ErrWriter, "rutter: without sessions: %v\n", err)
		}
		if err := addHeard(c.Context, api, list); err != nil {
			output.Printf(c.App.ErrWriter, "rutter: without when they were heard: %v\n", err)
		}
		byCN := make(map[string]*client.Session, len(sessions))
		for i := range sessions {
			byCN[sessions[i].CN.String()] = &sessions[i]
		}
		for _, object := range list {
			object["connection"] = byCN[output.Text(object["uuid"])] // null in JSON: no session
		}
		return output.Objects(c, list, append(append(objects.Columns(log.KindServer), lastHeardColumn), sessionColumns...))
	}
}

// shownCN is the output of `rutter cn show`.
type shownCN struct {
	Object     client.Object   `json:"object"`
	Connection *client.Session `json:"connection"`
}

func cnShow(c *cli.Context) error {
	if c.NArg() != 1 {
		return term.Usagef("want the UUID of one compute node")
	}
	cn, err := named.UUID(c, log.KindServer, c.Args().First())
	if err != nil {
		return err
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	var shown shownCN
	if shown.Object, err = api.Get(c.Context, "/servers/"+cn.String(), nil); err != nil {
		return err
	}
	sessions, err := api.EverySession(c.Context)
	if err != nil {
		return err
	}
	for i := range sessions {
		if sessions[i].CN == cn {
			shown.Connection = &sessions[i]
		}
	}
	if shown.Connection != nil {
		addDrift(c.Context, api, shown.Connection)
	}
	return output.One(c, shown, func(out io.Writer) { printCN(out, shown) })
}

// addDrift asks the server of a session what was repaired on the CN, because the leader
// does not know it. Without an answer it adds nothing.
func addDrift(ctx context.Context, api *client.Client, s *client.Session) {
	for _, server := range api.Servers() {
		held, err := api.Sessions(ctx, server)
		if err != nil {
			continue
		}
		for i := range held {
			if h := &held[i]; h.CN == s.CN && h.Incarnation == s.Incarnation && h.Session == s.Session {
				s.Healed, s.Drift = h.Healed, h.Drift
				return
			}
		}
	}
}

func printCN(out io.Writer, shown shownCN) {
	w := output.Aligned(out)
	line := func(name, format string, args ...any) {
		output.Printf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	for _, name := range []string{"uuid", "hostname", "status", "setup", "datacenter"} {
		line(name, "%s", output.Text(shown.Object[name]))
	}
	for _, name := range []string{"headnode", "reserved", "transitional_status", "ram", "current_platform", "last_boot", "admin_ip", "agent_port", "agents"} {
		if value, ok := shown.Object[name]; ok && value != false {
			line(name, "%s", output.Text(value))
		}
	}
	s := shown.Connection
	if s == nil {
		line("session", "none since the leader was elected")
		_ = w.Flush() // the terminal is gone
		return
	}
	state := "connected"
	if s.Gone {
		state = "ended"
	}
	line("session", "%s: incarnation %d, number %d", state, s.Incarnation, s.Session)
	line("server", "%s", s.Server)
	if s.HeardMS != nil && *s.HeardMS >= 0 {
		line("heard", "%s ago", time.Duration(*s.HeardMS)*time.Millisecond)
	}
	line("applied", "%d, %d entries and %d ms behind", s.Applied, s.Lag, s.BehindMS)
	line("programmed", "%d", s.Programmed)
	if s.Reached > s.Programmed {
		line("reached", "%d, but for what waits", s.Reached)
	}
	line("failing", "%d steps", s.Failing)
	line("waiting", "%d objects, and %d of VMs that are not to run", s.Waiting, s.Idle)
	for _, o := range s.Waits {
		if o.RetryAt.IsZero() {
			line("", "%s", o.Object)
		} else {
			line("", "%s (next try %s)", o.Object, o.RetryAt.Format(time.RFC3339))
		}
	}
	line("put right", "%d differences", s.Healed)
	for _, drift := range strings.Split(s.Drift, "\n") {
		if drift != "" {
			line("", "%s", drift)
		}
	}
	line("digest", "%s, checked at %d, %d scopes differed", output.Text(digestCell(s)), s.Checked, s.Mismatches)
	line("resets", "%d, the last: %s", s.Resets, output.Text(s.LastReset))
	_ = w.Flush()
}
