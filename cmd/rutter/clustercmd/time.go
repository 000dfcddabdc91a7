package clustercmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections"
)

// timeCommand shows the servers' clocks, and sets the log's time.
func timeCommand() *cli.Command {
	flags := []cli.Flag{term.ServersFlag(), output.Flag()}
	return &cli.Command{
		Name: "time", Usage: "the log's time and the servers' clocks", Flags: flags, Action: timeShow,
		Description: term.Examples("rutter cluster time", "rutter cluster time set          # says what it would do") +
			"\n\nEntries bear the time that the servers agree on: the middle one of their clocks. A server whose\n" +
			"clock is off does not lead while another can, and says so here, in cluster status, in\n" +
			"/readyz?verbose and in its log: set that clock right, the log follows by itself. If the log's\n" +
			"time itself is wrong, since all clocks were, or by a program of before, set sets it right.",
		Subcommands: []*cli.Command{
			{
				Name: "show", Usage: "the same as rutter cluster time", Flags: flags, Action: timeShow,
				Description: term.Examples("rutter cluster time show", "rutter cluster time show -o json"),
			},
			{
				Name: "set", Usage: "set the log's time, back or forward, by an entry of the log", Action: timeSet,
				Flags: append(slices.Clone(flags),
					&cli.StringFlag{Name: "to", Value: "now", Usage: "the `TIME`, as in 2026-11-21T09:00:00Z; now is what the servers' clocks agree on"},
					&cli.BoolFlag{Name: "yes", Usage: "do it; without this it only says what it would do"},
					&cli.BoolFlag{Name: "force", Usage: "also if the servers' clocks differ from --to, since all of them are wrong"}),
				Description: term.Examples("rutter cluster time set --yes", "rutter cluster time set --to 2026-11-21T09:00:00Z --yes") +
					"\n\nThis is the one thing that makes times go back along the log. The entries keep their seqs and\n" +
					"times; those between the first wrong time and this entry are found by seq only: --at TIME, --from\n" +
					"and --until look at what has been written since, if that had begun by then.",
			},
		},
	}
}

// clockOf describes a server's clock in one word.
func clockOf(c *client.Clock) string {
	switch {
	case c == nil:
		return "-"
	case c.Judged && c.Offset.Abs() > c.Bound:
		return "WRONG " + offsetOf(c.Offset)
	}
	return offsetOf(c.Offset)
}

// offsetOf is the text of a clock's offset from the agreed clock.
func offsetOf(d time.Duration) string {
	text := d.Round(100 * time.Microsecond).String()
	if d.Abs() > time.Minute {
		text = d.Round(time.Second).String()
	}
	if d >= 0 {
		text = "+" + text
	}
	return text
}

// shownTime is the output of `rutter cluster time`.
type shownTime struct {
	Time log.Time `json:"time"` // of the last entry
	client.Clock
	Server string `json:"server"` // the server that answered
}

func timeShow(c *cli.Context) error {
	if c.NArg() > 0 {
		return term.Usagef("%q is no subcommand: rutter cluster time show, or rutter cluster time set", c.Args().First())
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	shown, err := timeOfCluster(c.Context, api)
	if err != nil {
		return err
	}
	return output.One(c, shown, func(out io.Writer) { writeTime(out, &shown) })
}

func timeOfCluster(ctx context.Context, api *client.Client) (shownTime, error) {
	status, err := api.Status(ctx)
	if err != nil {
		return shownTime{}, err
	}
	if status.Detail.Clock == nil {
		return shownTime{}, fmt.Errorf("server %s knows nothing of the others' clocks: upgrade it", status.ID)
	}
	return shownTime{status.Time, *status.Detail.Clock, status.ID}, nil
}

func writeTime(out io.Writer, t *shownTime) {
	w := output.Aligned(out)
	output.Printf(w, "last entry\t%s\n", t.Time)
	output.Printf(w, "agreed clock\t%s\n", t.Agreed)
	output.Printf(w, "clock of %s\t%s\n", t.Server, clockOf(&t.Clock))
	for _, o := range t.Others {
		switch {
		case !o.Known:
			output.Printf(w, "clock of %s\tnot known: %s\n", o.ID, output.Text(o.Error))
		case o.Wrong:
			output.Printf(w, "clock of %s\tWRONG %s\n", o.ID, offsetOf(o.Offset))
		default:
			output.Printf(w, "clock of %s\t%s, to within %v\n", o.ID, offsetOf(o.Offset), o.Doubt.Round(10*time.Microsecond))
		}
	}
	_ = w.Flush() // the terminal is gone
	for _, alarm := range t.Alarms {
		output.Printf(out, "%s\n", alarm)
	}
}

func timeSet(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	var to log.Time
	if text := c.String("to"); text != "now" {
		m, err := term.Moment(c.Context, text)
		if err != nil || m.IsSeq {
			return term.Usagef("--to %q: want a time as in 2026-11-21T09:00:00Z, or now", text)
		}
		to = m.Time
	}
	api, err := clusterClient(c)
	if err != nil {
		return err
	}
	asked := time.Now()
	was, err := timeOfCluster(c.Context, api)
	if err != nil {
		return err
	}
	if to == 0 {
		to = was.Agreed + log.Time(time.Since(asked))
	}
	if off := time.Duration(to - was.Agreed); (!was.Judged || off.Abs() > was.Bound) && !c.Bool("force") {
		return term.Usagef("%s is not what the servers' clocks agree on, %s: set the clocks right first, or say --force if you know that they are wrong", to, was.Agreed)
	}
	output.Printf(c.App.ErrWriter, "the log's time goes from %s to %s, %s\n", was.Time, to, offsetOf(time.Duration(to-was.Time)))
	if !c.Bool("yes") {
		output.Print(c.App.ErrWriter, "nothing was changed; --yes does it\n")
		return nil
	}
	if err := putTime(c.Context, api, to, c.Bool("force")); err != nil {
		return err
	}
	return timeShow(c)
}

// putTime writes the setting, which may exist already.
func putTime(ctx context.Context, api *client.Client, to log.Time, force bool) error {
	value := to.Std().Format(time.RFC3339Nano)
	if force {
		value += projections.ForcedTime
	}
	body, err := json.Marshal(map[string]string{"value": value})
	if err != nil {
		return err
	}
	_, err = api.Update(ctx, "/settings/"+projections.SettingClusterTime, body, "")
	var refused *log.Refusal
	if !errors.As(err, &refused) || refused.Code != log.CodeResourceNotFound {
		return err
	}
	if body, err = json.Marshal(map[string]string{"name": projections.SettingClusterTime, "value": value}); err != nil {
		return err
	}
	_, err = api.Create(ctx, "/settings", body)
	return err
}
