package vminfod

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"rutter/agent/vminfo/vmdoc"
)

// Wanted is a change to wait for. Fields that are set must match; the others match
// anything. A Step of Path with Any matches any step.
type Wanted struct {
	Path     []vmdoc.Step
	Action   vmdoc.Action // "": any
	Old, New *vmdoc.Value // nil: any
}

// match reports whether a change is the wanted one.
func (w Wanted) match(c vmdoc.Change) bool {
	return slices.EqualFunc(w.Path, c.Path, func(want, got vmdoc.Step) bool { return want.Any || want == got }) &&
		(w.Action == "" || w.Action == c.Action) && within(w.Old, c.Old) && within(w.New, c.New)
}

func within(want, got *vmdoc.Value) bool { return want == nil || got != nil && want.Equal(*got) }

// WaitEvent returns the first message from here on that includes want, such as
// {"type":"delete","uuid":…} (vminfod's watchForEvent). name is for the error. Errors:
// ErrTimeout at ctx's deadline, ErrEnded. The stream must have been opened with ctx.
func (e *Events) WaitEvent(ctx context.Context, name string, want vmdoc.Value) (Message, error) {
	for {
		m, err := e.Next()
		if err != nil {
			return m, waitError(ctx, "watchForEvent", name, err)
		}
		v, err := vmdoc.ParseValue(m.Line)
		if err != nil {
			return m, err
		}
		if v.Includes(want) {
			return m, nil
		}
	}
}

// WaitChanges returns when every element of wants was seen in the messages that
// include of; an element is a list of alternatives, and one change serves one
// element (vminfod's watchForChanges). No wants: it returns at once.
func (e *Events) WaitChanges(ctx context.Context, name string, of vmdoc.Value, wants [][]Wanted) error {
	wants = slices.Clone(wants)
	for len(wants) > 0 {
		m, err := e.Next()
		if err != nil {
			return waitError(ctx, "watchForChanges", name, err)
		}
		v, err := vmdoc.ParseValue(m.Line)
		if err != nil {
			return err
		}
		if !v.Includes(of) {
			continue
		}
		for _, change := range m.Changes {
			i := slices.IndexFunc(wants, func(any []Wanted) bool {
				return slices.ContainsFunc(any, func(w Wanted) bool { return w.match(change) })
			})
			if i >= 0 {
				wants = slices.Delete(wants, i, i+1)
			}
		}
	}
	return nil
}

// waitError names a deadline as vminfod does.
func waitError(ctx context.Context, what, name string, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("vminfod %s %q %w", what, name, vmdoc.ErrTimeout)
	}
	return err
}
