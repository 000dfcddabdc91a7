package applycmd

import (
	"io"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/planprint"
	"rutter/cmd/rutter/term"
	"rutter/projections/foresee"
)

// answer is the JSON form of a plan, and of what was done of it.
type answer struct {
	*foresee.Outcome
	Counts  planprint.Counts `json:"counts"`
	Same    int              `json:"as_declared"` // objects that need nothing
	Nothing bool             `json:"nothing_to_do"`
	Prune   *pruned          `json:"prune,omitempty"`
	Receipt *receipt         `json:"receipt,omitempty"`
}

func answerOf(s *set, r *receipt) answer {
	a := answer{Outcome: &s.outcome, Counts: planprint.Count(&s.outcome), Same: s.same, Nothing: s.empty(), Receipt: r}
	if s.prune.Set != "" {
		a.Prune = &s.prune
	}
	return a
}

// show prints a set in a format, and of JSON its receipt, if it was written.
func show(w io.Writer, format string, s *set, r *receipt) error {
	switch format {
	case "json":
		return output.Indented(w, answerOf(s, r))
	case "ndjson":
		return planprint.Outcome(w, format, &s.outcome)
	}
	if err := planprint.Outcome(w, format, &s.outcome); err != nil {
		return err
	}
	if p := s.prune; p.Set != "" {
		if err := output.Printf(w, "prune: %d of the %d objects of %s are declared by no document\n", p.Deleted, p.All, p.Set); err != nil {
			return err
		}
	}
	if s.empty() {
		return output.Print(w, "nothing to do\n")
	}
	return output.Printf(w, "plan: %s\n", planprint.Count(&s.outcome))
}

// showReceipt prints what was written: the last line.
func showReceipt(c *cli.Context, format string, s *set, r *receipt) error {
	w := c.App.Writer
	switch format {
	case "json":
		return show(w, format, s, r)
	case "ndjson":
		return output.JSON(w, struct {
			Sort string `json:"sort"`
			*receipt
		}{"receipt", r})
	}
	return output.Printf(w, "%s\n", r.line(func(command string) string { return term.Again(c, command) }))
}
