package clustercmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/backup"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// scheduleCommands are the commands of the backups that servers make by themselves.
func scheduleCommands() []*cli.Command {
	return []*cli.Command{
		{
			Name: "schedule", Usage: "the backups that servers make by their settings: how old, when next, what is wrong", Action: snapshotSchedule,
			Flags: []cli.Flag{term.ServersFlag(), output.TableFlag()},
			Description: term.Examples("rutter snapshot schedule", "rutter snapshot schedule -o json") +
				"\n\nEach server named by --server is asked. backup-every, backup-folder and backup-keep in [server]\n" +
				"of a server's settings are its schedule: docs/backup.md. The exit code is 1 if one of them\n" +
				"has an alarm, or does not answer.",
		},
		{
			Name: "now", Usage: "make a backup beside the schedule, on each server named by --server, one after the other", Action: snapshotNow,
			Flags:       []cli.Flag{term.ServersFlag(), output.TableFlag(), &cli.DurationFlag{Name: "wait", Value: time.Hour, Usage: "give up after this `TIME`; the server goes on"}},
			Description: term.Examples("rutter snapshot now -s http://10.0.0.1:7420", "rutter snapshot now && rutter snapshot schedule     # before an upgrade"),
		},
	}
}

// scheduleAnswer is what one server answers of its backups, or its error.
type scheduleAnswer struct {
	URL    string `json:"url"`
	Server string `json:"server,omitempty"`
	backup.Status
	Unreached string `json:"unreached,omitempty"`
}

// askSchedule asks one server.
func askSchedule(ctx context.Context, cfg client.Config, method, server string) (a scheduleAnswer, err error) {
	a.URL = server
	cfg.Servers = []string{server}
	api, err := client.New(cfg)
	if err != nil {
		return a, err
	}
	defer api.Close()
	raw, err := api.Raw(ctx, method, "/snapshot/schedule", nil)
	if err == nil {
		err = json.Unmarshal(raw, &a)
	}
	return a, err
}

func snapshotSchedule(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	cfg, err := term.ClientConfig(c)
	if err != nil {
		return err
	}
	var answers []scheduleAnswer
	reached, bad := false, 0
	for _, server := range cfg.Servers {
		a, err := askSchedule(c.Context, cfg, http.MethodGet, server)
		if err != nil {
			a.Unreached = err.Error()
		}
		if err != nil || len(a.Alarms) > 0 {
			bad++
		}
		reached = reached || err == nil
		answers = append(answers, a)
	}
	if err := printSchedules(c, answers); err != nil {
		return err
	}
	switch {
	case !reached:
		return client.ErrUnavailable
	case bad > 0:
		return fmt.Errorf("%d of %d servers have an alarm about their backups, or do not answer", bad, len(answers))
	}
	return nil
}

func snapshotNow(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	cfg, err := term.ClientConfig(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("wait"))
	defer cancel()
	var answers []scheduleAnswer
	var failures []error
	for _, server := range cfg.Servers {
		a, err := makeBackup(ctx, cfg, server)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", server, err))
			a.Unreached = err.Error()
		}
		answers = append(answers, a)
	}
	return errors.Join(append(failures, printSchedules(c, answers))...)
}

// nowPause is the time between two looks at a backup that was asked for.
const nowPause = 200 * time.Millisecond

// makeBackup has one server make a backup, and waits until it has.
func makeBackup(ctx context.Context, cfg client.Config, server string) (scheduleAnswer, error) {
	before, err := askSchedule(ctx, cfg, http.MethodPost, server)
	if err != nil {
		return before, err
	}
	for {
		select {
		case <-ctx.Done():
			return before, fmt.Errorf("the backup has not ended: %w", ctx.Err())
		case <-time.After(nowPause):
		}
		a, err := askSchedule(ctx, cfg, http.MethodGet, server)
		switch {
		case err != nil:
			return a, err
		case a.Failures > before.Failures:
			return a, errors.New(a.Error)
		case a.Made > before.Made:
			return a, nil
		}
	}
}

func printSchedules(c *cli.Context, answers []scheduleAnswer) error {
	if c.String("output") == "csv" {
		return output.Table(c, answers, func(w io.Writer) { writeSchedules(w, answers) })
	}
	return output.One(c, answers, func(out io.Writer) {
		w := output.Aligned(out)
		writeSchedules(w, answers)
		_ = w.Flush() // the terminal is gone
		for _, a := range answers {
			for _, alarm := range a.Alarms {
				output.Printf(out, "%s %s\n", "ALARM", output.Text(alarm))
			}
			if a.OldLogs > 0 {
				output.Printf(out, "%s: %d backups in %s are of logs that are no more; no server deletes them: docs/backup.md says when you may\n", a.Server, a.OldLogs, output.Text(a.Folder))
			}
			if a.SameDisk {
				output.Printf(out, "%s: %s is on the disk of the data folder, and is lost with it: docs/backup.md\n", a.Server, output.Text(a.Folder))
			}
		}
	})
}

// writeSchedules is a line for each server.
func writeSchedules(w io.Writer, answers []scheduleAnswer) {
	output.Print(w, "SERVER\tEVERY\tFOLDER\tKEPT\tLAST\tAGE\tSEQ\tSIZE\tVERIFIED\tNEXT\n")
	for _, a := range answers {
		name := a.Server
		if name == "" {
			name = a.URL
		}
		switch {
		case a.Unreached != "" && a.Server == "":
			output.Printf(w, "%s\t-\t-\t-\t-\t-\t-\t-\t-\t%s\n", a.URL, a.Unreached)
			continue
		case !a.On:
			output.Printf(w, "%s\tnever\t-\t-\t-\t-\t-\t-\t-\tbackup-every is not set\n", output.Text(name))
			continue
		}
		last, age, seq, size, verified := "none", "-", "-", "-", "-"
		if a.Last != nil {
			last, age = a.Last.At.UTC().Format(time.RFC3339), (time.Duration(a.Age) * time.Second).String()
			seq, size, verified = a.Last.Seq.String(), output.Size(a.Last.Bytes), output.YesNo(!a.Verified.IsZero())
		}
		next := a.Next.UTC().Format(time.RFC3339)
		if a.Running {
			next = "runs"
		}
		output.Printf(w, "%s\t%s\t%s\t%d of %d\t%s\t%s\t%s\t%s\t%s\t%s\n", output.Text(name), a.Every, output.Text(a.Folder), a.Kept, a.Keep, last, age, seq, size, verified, next)
	}
}
