package revertcmd

import (
	"fmt"
	"io"
	"strings"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/planprint"
	"rutter/log"
	"rutter/log/line"
	"rutter/projections/foresee"
	"rutter/projections/undo"
)

// document is -o json.
type document struct {
	Plan    *undo.Plan       `json:"revert"`
	Reverts log.Reverts      `json:"reverts"`
	Outcome *foresee.Outcome `json:"outcome"`
	Changes int              `json:"changes"`
	Written *Receipt         `json:"written"` // null: nothing was written
}

// sorted is a line of -o ndjson: what it is, and the thing itself.
type sorted struct {
	Sort  string `json:"sort"`
	Value any    `json:"value"`
}

// lines prints -o ndjson.
func (r *run) lines(receipt *Receipt) error {
	out := r.c.App.Writer
	var all []sorted
	for _, x := range r.plan.Conflicts {
		all = append(all, sorted{"conflict", x})
	}
	for _, x := range r.plan.Impossible {
		all = append(all, sorted{"impossible", x})
	}
	for _, x := range r.plan.Skipped {
		all = append(all, sorted{"skipped", x})
	}
	for _, x := range all {
		if err := output.JSON(out, x); err != nil {
			return err
		}
	}
	if err := planprint.Outcome(out, r.format, &r.look); err != nil {
		return err
	}
	if receipt == nil {
		return nil
	}
	return output.JSON(out, sorted{"written", receipt})
}

// notes prints conflicts, what cannot be, and what is left.
func (r *run) notes(out io.Writer) {
	for _, x := range r.plan.Conflicts {
		output.Printf(out, "? %s %s: changed again by %s:\n", x.Kind, planprint.Called(x.ID, x.Name), x.Since)
		if x.Fields == nil {
			output.Printf(out, "    it was %s, was %s, and is %s\n", x.Was, x.Then, x.Now)
		}
		for _, f := range x.Fields {
			output.Printf(out, "    %s: was %s, then %s, now %s\n", f.Path, line.Value(f.Path, f.Was), line.Value(f.Path, f.Then), line.Value(f.Path, f.Now))
		}
		output.Printf(out, "    choose: --take %s/%s=was or --take %s/%s=now\n", x.Kind, x.ID, x.Kind, x.ID)
	}
	for _, x := range r.plan.Impossible {
		output.Printf(out, "! %s %s cannot be taken back: %s%s\n", x.Kind, planprint.Called(x.ID, x.Name), x.Why, remedy(x.Remedy))
	}
	for _, x := range r.plan.Skipped {
		fields := ""
		if len(x.Fields) > 0 {
			fields = " (" + strings.Join(x.Fields, ", ") + ")"
		}
		output.Printf(out, "= %s %s: %d entries are left%s: %s\n", x.Kind, planprint.Called(x.ID, x.Name), x.Entries, fields, x.Why)
	}
}

func remedy(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", text)
}
