package logcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/planprint"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections/foresee"
)

// whatIf decides changes on the state, and prints what they would do.
func whatIf(c *cli.Context, s *pastLog) error {
	in, err := term.Input(c.Context, c.String("what-if"))
	if err != nil {
		return err
	}
	defer in.Close()
	state, err := s.state(c.Context, s.head, statePart{})
	if err != nil {
		return err
	}
	var changes []*log.Change
	decoder := json.NewDecoder(in)
	for n := 1; ; n++ {
		change, err := readChange(decoder)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("change %d of %s: %w", n, c.String("what-if"), err)
		}
		changes = append(changes, change)
	}
	outcome := foresee.Of(state, s.head, changes)
	if err := planprint.Outcome(c.App.Writer, c.String("output"), &outcome); err != nil {
		return err
	}
	if c.String("output") == "table" {
		if err := output.Printf(c.App.Writer, "%s\n", planprint.Count(&outcome)); err != nil {
			return err
		}
	}
	if n := outcome.Refusals(); n > 0 {
		return fmt.Errorf("%d changes would be refused", n)
	}
	return nil
}

// readChange reads a change, as POST /changes has it; foresee.Of gives it an id.
func readChange(in *json.Decoder) (*log.Change, error) {
	var form struct {
		Ops []struct {
			Action  log.Action      `json:"action"`
			Kind    log.Kind        `json:"kind"`
			ID      string          `json:"id"`
			IfMatch log.Revision    `json:"if_match"`
			IfSeq   log.Seq         `json:"if_seq"`
			Object  json.RawMessage `json:"object"`
		} `json:"ops"`
	}
	if err := in.Decode(&form); err != nil {
		return nil, err
	}
	change := &log.Change{Actor: "what-if"}
	for _, o := range form.Ops {
		op := log.Op{Action: o.Action, Kind: o.Kind, ID: o.ID, IfMatch: o.IfMatch, IfSeq: o.IfSeq}
		if o.Object != nil {
			var err error
			if op.Object, op.Set, err = log.ParseObject(o.Kind, o.Object); err != nil {
				return nil, err
			}
		}
		change.Ops = append(change.Ops, op)
	}
	return change, nil
}
