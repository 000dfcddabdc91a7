package logcmd

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/bulkwrite"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/replayinto"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/archive"
)

func mapFlag() cli.Flag {
	return &cli.StringFlag{Name: "map", Usage: "into a cluster: record in this `FILE` which change and seq there stand for which of the log; a line of JSON each (default: replay-SOURCE-TARGET.ndjson)"}
}

func goOnFlag() cli.Flag {
	return &cli.BoolFlag{Name: "go-on", Usage: "into a cluster: make what comes behind a change that it refuses; the map file has the refusals"}
}

// replayCluster replays a log into the cluster of a URL.
func replayCluster(c *cli.Context, s *pastLog, to string, speed uint64) (err error) {
	from := replayinto.Source{Floor: s.floor, Head: s.head, Entries: s.entries(c.Context, s.floor)}
	if s.folder != nil {
		from.Cluster = s.folder.Head().Cluster
	} else {
		status, err := s.api.Status(c.Context)
		if err != nil {
			return err
		}
		from.Cluster = status.Head.Cluster
	}
	if s.floor > 0 {
		if from.State, err = s.folder.StateAt(c.Context, s.floor); err != nil {
			return err
		}
	}
	return repeatIn(c, from, to, speed)
}

// importCluster replays an export into the cluster of a URL.
func importCluster(c *cli.Context, in *archive.Reader, to string) error {
	return repeatIn(c, replayinto.Source{Cluster: in.Header().Cluster, Entries: archived(c.Context, in)}, to, 0)
}

// repeatIn repeats a log in the cluster of a URL, and prints the result.
func repeatIn(c *cli.Context, from replayinto.Source, to string, speed uint64) error {
	api, err := term.OpenClient(term.ClientConfigOf(c, strings.Split(to, ",")))
	if err != nil {
		return err
	}
	defer api.Close()
	progress := bulkwrite.NewProgress(c.App.ErrWriter, term.Terminal(c.App.ErrWriter), "entries", time.Now)
	o := replayinto.Options{Map: c.String("map"), GoOn: c.Bool("go-on"), Show: progress.Show}
	if speed > 0 {
		p := pace{speed: speed}
		o.Wait = func(ctx context.Context, at log.Time) error { return p.wait(ctx, at) }
	}
	done, err := replayinto.Run(c.Context, api, from, o)
	progress.End()
	switch {
	case errors.Is(err, replayinto.ErrSameCluster):
		return term.Usagef("--to %s: %w", to, err)
	case done.Map == "":
		output.Printf(c.App.ErrWriter, "nothing was made in %s, %d changes were skipped\n", to, done.Skipped)
		return err
	}
	output.Printf(c.App.ErrWriter, "cluster %s: %d changes made, %d were there, %d skipped, %d refused; %s says which is which\n", done.Target, done.Made, done.Had, done.Skipped, done.Refused, done.Map)
	return err
}
