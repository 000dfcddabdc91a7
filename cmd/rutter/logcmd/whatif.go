package logcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
	"rutter/projections/rules"
)

// whatIf decides changes on the state, and prints their results.
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
	before := linksOf(state)
	out := &diffPrinter{w: c.App.Writer, json: c.String("output") != "table"}
	seq, refused := s.head, 0
	decoder := json.NewDecoder(in)
	for n := 1; out.err == nil; n++ {
		change, err := readChange(decoder, n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("change %d of %s: %w", n, c.String("what-if"), err)
		}
		change.Time, change.Seed = state.Time(), uint64(n)
		events, result := rules.Decide(state, change)
		if result.Refusal != nil {
			refused++
			out.print(result, fmt.Sprintf("change %d is refused: %s", n, result.Refusal))
			continue
		}
		for _, e := range events {
			seq++
			out.print(log.Line{Seq: seq, Event: e}, fmt.Sprintf("change %d: %s %s %s rev=%d", n, e.Action, e.Kind, e.ID, e.Revision))
			if _, err := state.Apply(seq, e); err != nil {
				return err
			}
		}
	}
	after := linksOf(state)
	for _, cn := range state.CNs(log.AllScope()) {
		if changes := desired.DiffLinks(before[cn], after[cn]); len(changes) > 0 {
			if !out.json {
				output.Printf(c.App.Writer, "CN %s:\n", cn)
			}
			out.links(cn.String(), changes)
		}
		delete(before, cn)
	}
	if out.err == nil && refused > 0 {
		return fmt.Errorf("%d changes would be refused", refused)
	}
	return out.err
}

// linksOf returns the links of all CNs.
func linksOf(state *projections.State) map[log.UUID]desired.Links {
	links := map[log.UUID]desired.Links{}
	for _, cn := range state.CNs(log.AllScope()) {
		links[cn] = desired.Of(state, cn)
	}
	return links
}

// readChange reads the nth change, as POST /changes has it.
func readChange(in *json.Decoder, n int) (*log.Change, error) {
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
	change := &log.Change{ID: log.UUID{6: 0x70, 8: 0x80, 15: byte(n)}, Actor: "what-if"}
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
