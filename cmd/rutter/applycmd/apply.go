package applycmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"rutter/api/client"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections/documents/source"
	"rutter/projections/foresee"
)

func runApply(c *cli.Context) error {
	what, within, err := waitOf(c)
	if err != nil {
		return err
	}
	if err := canAsk(c); err != nil {
		return err
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	defer api.Close()
	var s *set
	if c.NArg() > 0 {
		s, err = savedSet(c, api)
	} else {
		s, err = declaredSet(c, api)
	}
	if err != nil {
		return err
	}
	format := c.String("output")
	if s.empty() && s.before == nil {
		return show(c.App.Writer, format, s, nil)
	}
	if format != "json" {
		if err := show(c.App.Writer, format, s, nil); err != nil {
			return err
		}
	}
	if err := accepted(s, s.docs, acceptsOf(c)); err != nil {
		return err
	}
	if !s.empty() {
		if err := ask(c); err != nil {
			return err
		}
	}
	done, failed := execute(c.Context, api, s, progressTo(c.App.ErrWriter))
	if failed == nil {
		failed = waitFor(c.Context, api, what, within, done, c.App.ErrWriter)
	} else {
		failed = unwritten(c.Context, api, s, done, failed)
	}
	return errors.Join(showReceipt(c, format, s, done), failed)
}

// unwritten says what was not written, and why.
func unwritten(ctx context.Context, api *client.Client, s *set, done *receipt, failed error) error {
	rest := s.changes[len(s.changes)-done.Left:]
	if errors.As(failed, new(*log.Refusal)) {
		if is, err := read(ctx, api); err == nil {
			if texts := stale(is.state, rest); len(texts) > 0 {
				failed = namedRefusal{strings.Join(texts[:min(len(texts), maxNamed)], "; ") + ": make the plan again", failed}
			}
		}
	}
	state := "not written"
	if done.Unknown {
		state = "not written, except perhaps the first of them"
	}
	return fmt.Errorf("%d of %d changes are %s; run it again to go on: %w", done.Left, len(s.changes), state, failed)
}

// canAsk refuses to begin where a question could not be answered.
func canAsk(c *cli.Context) error {
	if c.Bool("yes") {
		return nil
	}
	if slices.Contains(c.StringSlice("file"), source.Standard) {
		return term.Usagef("the documents come from standard input, where the answer to a question would: add --yes, or name a file")
	}
	if in, is := c.App.Reader.(io.Writer); !is || !term.Terminal(in) {
		return term.Usagef("standard input is no terminal, so that the plan cannot be agreed to: look at it with rutter plan, then add --yes")
	}
	return nil
}

// ask asks whether the plan that was shown shall be done.
func ask(c *cli.Context) error {
	if c.Bool("yes") {
		return nil
	}
	if err := output.Print(c.App.ErrWriter, "Write this? Only yes is taken as such: "); err != nil {
		return err
	}
	line, err := bufio.NewReader(io.LimitReader(c.App.Reader, 1<<10)).ReadString('\n')
	if strings.TrimSpace(line) == "yes" {
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return errors.New("nothing was written: the answer was not yes")
}

// declaredSet makes the set that documents ask for.
func declaredSet(c *cli.Context, api *client.Client) (*set, error) {
	prune, err := pruneOf(c)
	if err != nil {
		return nil, err
	}
	docs, err := docsOf(c)
	if err != nil {
		return nil, err
	}
	is, err := read(c.Context, api)
	if err != nil {
		return nil, err
	}
	s, err := makeSet(is, docs, prune, time.Now())
	if err != nil {
		return nil, err
	}
	s.docs = len(docs)
	return s, nil
}

// savedSet makes the set of a file that plan --out wrote: what of it is not written yet.
func savedSet(c *cli.Context, api *client.Client) (*set, error) {
	name, err := term.OneFile(c)
	if err != nil {
		return nil, err
	}
	if c.IsSet("file") || c.Bool("prune") {
		return nil, term.Usagef("a saved plan has its documents in it: leave -f and --prune out")
	}
	plan, changes, err := load(name)
	if err != nil {
		return nil, err
	}
	is, err := read(c.Context, api)
	if err != nil {
		return nil, err
	}
	if plan.Cluster != is.cluster {
		return nil, fmt.Errorf("%s is for the log of %s, and these servers have that of %s: name the servers that it was made of", name, plan.Cluster, is.cluster)
	}
	s := &set{head: is.head, fixed: true, docs: 1}
	for len(changes) > 0 {
		there, err := isWritten(c.Context, api, changes[0])
		if err != nil {
			return nil, err
		}
		if !there {
			break
		}
		s.before, changes = append(s.before, changes[0]), changes[1:]
	}
	if err := s.goOn(c.Context, api, is, changes); err != nil {
		return nil, err
	}
	if texts := stale(is.state, changes); len(texts) > 0 {
		refusal := &log.Refusal{Code: log.CodePreconditionFailed, Message: strings.Join(texts[:min(len(texts), maxNamed)], "; ")}
		return nil, fmt.Errorf("%s is of another state: %w; make the plan again", name, namedRefusal{refusal.Message, refusal})
	}
	s.changes = changes
	s.outcome = foresee.Of(is.state, is.head, changes)
	return s, nil
}

// isWritten reports whether an entry of a change is in the log, by the history of its
// first object.
func isWritten(ctx context.Context, api *client.Client, c *log.Change) (bool, error) {
	if len(c.Ops) == 0 {
		return false, nil
	}
	op := &c.Ops[0]
	id := idOf(op)
	if id == "" {
		return false, nil // it is sent under the same id, and done once
	}
	for l, err := range api.History(ctx, op.Kind, id) {
		if err != nil {
			return false, err
		}
		if l.Event.ChangeID == c.ID {
			return true, nil
		}
	}
	return false, nil
}

// goOn makes the conditions of changes hold after those of the same plan that are written:
// where one of these was the last to change an object.
func (s *set) goOn(ctx context.Context, api *client.Client, is *cloud, changes []*log.Change) error {
	if len(s.before) == 0 {
		return nil
	}
	ours := map[log.UUID]bool{}
	for _, c := range s.before {
		ours[c.ID] = true
	}
	for _, c := range changes {
		for i := range c.Ops {
			op := &c.Ops[i]
			r, held := is.state.Get(op.Kind, op.ID)
			if !held || op.IfSeq == 0 || op.IfSeq >= r.Seq {
				continue
			}
			for e, err := range api.Entries(ctx, r.Seq-1) {
				if err != nil {
					return err
				}
				event, err := e.Event()
				if err != nil {
					return err
				}
				if ours[event.ChangeID] {
					op.IfSeq = r.Seq
				}
				break
			}
		}
	}
	return nil
}

// execute writes a set.
func execute(ctx context.Context, api *client.Client, s *set, tell func(done, all int64)) (*receipt, error) {
	stream := api.NewStream()
	streaming, cancel := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return stream.Run(streaming) })
	w := &writer{to: stream, newID: client.NewChangeID, tell: tell}
	err := w.write(ctx, s)
	cancel()
	if ended := g.Wait(); ended != nil && !errors.Is(ended, context.Canceled) {
		err = errors.Join(err, ended)
	}
	return &w.done, err
}
