package logcmd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/history"
)

// verifyCommand is `rutter log verify`.
func verifyCommand() *cli.Command {
	return &cli.Command{
		Name: "verify", Usage: "check that a log is whole, and that the objects are what it says", Action: logVerify,
		ArgsUsage: "[FOLDER|SNAPSHOT|EXPORT ...]",
		Flags:     []cli.Flag{term.ServersFlag(), term.DataFlag(), output.Flag("table", "json")},
		Description: "An export: its checksums and chain. A data folder of a stopped server, or a snapshot file: every checksum, the chain, each checkpoint and the objects against the replay of the entries, the index. Without one, each server that --server names: its entries are read and chained, its objects compared with the replay, and the servers with each other. What is wrong is printed with what to do, and the exit code is 1.\n\n" + term.Examples(
			"rutter log verify /var/lib/rutter",
			"rutter log verify snapshot.rutter -o json",
			"rutter log verify log.rlog   # of rutter log export",
			"rutter log verify -s http://10.0.0.1:7420 -s http://10.0.0.2:7420 -s http://10.0.0.3:7420",
		),
	}
}

// checked is the result for one log.
type checked struct {
	Name string `json:"name"`
	*history.Verified
}

func logVerify(c *cli.Context) error {
	var results []checked
	paths := c.Args().Slice()
	if path := c.String("data"); path != "" {
		paths = append(paths, path) // --data, as in other commands
	}
	for _, path := range paths {
		v, err := verifyFolder(c.Context, path)
		if err != nil {
			return err
		}
		results = append(results, checked{path, v})
	}
	if len(paths) == 0 {
		for _, server := range c.StringSlice("server") {
			for one := range strings.SplitSeq(server, ",") {
				v, err := verifyServer(c, one)
				if err != nil {
					return fmt.Errorf("%s: %w", one, err)
				}
				results = append(results, checked{one, v})
			}
		}
		if err := compareServers(c, results); err != nil {
			return err
		}
	}
	return printVerified(c, results)
}

func printVerified(c *cli.Context, results []checked) error {
	bad := false
	for _, r := range results {
		bad = bad || len(r.Problems) > 0
		if c.String("output") == "json" {
			if err := output.JSON(c.App.Writer, r); err != nil {
				return err
			}
			continue
		}
		word := "whole"
		if len(r.Problems) > 0 {
			word = fmt.Sprintf("DAMAGED: %d findings", len(r.Problems))
		}
		output.Printf(c.App.Writer, "%s: %s; %d entries after %d, head %s, %d objects, %d checkpoints, %d index blocks\n", r.Name, word, r.Events, r.Floor, r.Head, r.Objects, r.Checkpoints, r.Blocks)
		for _, p := range r.Problems {
			output.Printf(c.App.Writer, "  %s\n    what to do: %s\n", p.What, p.Remedy)
		}
	}
	if bad {
		return errors.New("a log is damaged: see above what to do")
	}
	return nil
}

// verifyExport verifies a file of `rutter log export`. Errors: log.ErrFormat if it is
// another file.
func verifyExport(ctx context.Context, path string) (v *history.Verified, err error) {
	r, file, err := openArchive(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	v = &history.Verified{Floor: r.Header().Floor}
	for e, err := range archived(ctx, r) {
		if err == nil {
			_, err = e.Event()
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			v.Problems = append(v.Problems, history.Finding{Seq: r.Header().Floor + log.Seq(v.Events) + 1, What: err.Error(), Remedy: "export it anew: rutter log export"})
			break
		}
		v.Events++
	}
	seq, hash := r.Place()
	v.Head, v.Chain = log.Cursor{Cluster: r.Header().Cluster, Seq: seq, Chain: hash.Prefix()}, hash
	return v, nil
}

func verifyFolder(ctx context.Context, path string) (v *history.Verified, err error) {
	if v, err := verifyExport(ctx, path); err == nil || errors.Is(err, log.ErrCorrupt) {
		return v, err
	}
	f, err := openFolder(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return f.Verify(ctx, output.Percent("entry"))
}

// verifyServer reads the whole log of one server, and its objects.
func verifyServer(c *cli.Context, server string) (v *history.Verified, err error) {
	ctx := c.Context
	api, err := term.OpenClient(term.ClientConfigOf(c, []string{server}))
	if err != nil {
		return nil, err
	}
	s, err := askCluster(ctx, server, api)
	if err != nil {
		return nil, err
	}
	defer closeJoining(s, &err)
	live, err := api.State(ctx, url.Values{})
	if err != nil {
		return nil, err
	}
	s.head = live.Seq
	v = &history.Verified{Floor: s.floor, Objects: len(live.Objects)}
	bad := func(seq log.Seq, what string, args ...any) {
		v.Problems = append(v.Problems, history.Finding{Seq: seq, What: fmt.Sprintf(what, args...), Remedy: "rutter cluster rebuild takes this server's state from the others"})
	}
	state := projections.NewState()
	if s.floor > 0 {
		if state, err = s.state(ctx, s.floor, statePart{}); err != nil {
			return nil, err
		}
	}
	if v.Head.Chain, err = replayInto(ctx, s, state, v, bad); err != nil || len(v.Problems) > 0 {
		return v, err
	}
	status, err := api.StatusOf(ctx, server)
	if err != nil {
		return nil, err
	}
	v.Head.Cluster, v.Head.Seq = status.Head.Cluster, s.head
	// JSON shortens times, so a state that began with objects from a server's answer
	// has no digest to compare. The server's own replay has one.
	replayed := state.Sum().String()
	if s.floor > 0 {
		answer, err := api.State(ctx, url.Values{"at": {s.head.String()}})
		if err != nil {
			return nil, err
		}
		replayed = answer.Digest
	}
	if replayed != live.Digest {
		bad(s.head, "the digest of the objects is %s, and that of the replay %s", live.Digest, replayed)
	}
	return v, nil
}

// replayInto folds the entries of a server, and reports faults to bad.
func replayInto(ctx context.Context, s *pastLog, state *projections.State, v *history.Verified, bad func(seq log.Seq, what string, args ...any)) (last log.ChainPrefix, err error) {
	progress := output.Percent("entry")
	for e, err := range s.entries(ctx, s.floor) {
		if err != nil {
			return last, err
		}
		event, err := e.Event()
		if err == nil {
			_, err = state.Apply(e.Seq, event)
		}
		if err != nil {
			bad(e.Seq, "%v", err)
			return last, nil
		}
		last = e.Hash.Prefix()
		if v.Events++; v.Events%(1<<14) == 0 {
			progress(int64(v.Events), int64(s.head-s.floor))
		}
	}
	progress(int64(s.head-s.floor), int64(s.head-s.floor))
	if got := s.floor + log.Seq(v.Events); got != s.head {
		bad(got+1, "the entries end at %d, and the state is of %d", got, s.head)
	}
	return last, nil
}

// compareServers adds the differences between servers at the lowest of their heads.
func compareServers(c *cli.Context, results []checked) error {
	for i := range results[min(1, len(results)):] {
		a, err := openNamed(c, results[0].Name)
		if err != nil {
			return err
		}
		b, err := openNamed(c, results[i+1].Name)
		if err != nil {
			return errors.Join(err, a.close())
		}
		from, to := max(a.floor, b.floor), min(results[0].Head.Seq, results[i+1].Head.Seq)
		seq := log.Seq(0)
		if from < to {
			seq, err = firstApart(c.Context, a, b, from, to)
		}
		if err := errors.Join(err, a.close(), b.close()); err != nil {
			return err
		}
		if seq > 0 {
			v := results[i+1].Verified
			v.Problems = append(v.Problems, history.Finding{
				Seq: seq, What: fmt.Sprintf("from seq %d on it has other entries than %s", seq, results[0].Name),
				Remedy: "rutter cluster status says which server differs from the majority; rutter cluster rebuild that one",
			})
		}
	}
	return nil
}
