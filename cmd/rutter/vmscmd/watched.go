package vmscmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"rutter/agent/vminfo/vmhelper"
	"rutter/cmd/rutter/sdnotify"
)

const (
	// askEvery is the pause between two questions of the helper to itself.
	askEvery = 5 * time.Second
	// answeredWithin is how long it may give itself no answer. Its answer about itself needs
	// no disk and no VM, so a restart is what there is left.
	answeredWithin = time.Minute
)

// watched is the helper as its supervisor sees it: as a client of its socket.
type watched struct {
	ask      func(context.Context) (*vmhelper.Report, error)
	asked    time.Time
	answered time.Time // zero: not yet, and its first question was at began
	began    time.Time
	last     sdnotify.Report
}

// report says what the helper does. It is ready with its first answer.
func (w *watched) report(now time.Time) sdnotify.Report {
	if w.last.Ready && now.Sub(w.asked) < askEvery {
		return w.last
	}
	if w.asked = now; w.began.IsZero() {
		w.began = now
	}
	answer, err := w.ask(context.Background()) // the client bounds it
	switch {
	case err == nil:
		w.answered = now
		w.last = sdnotify.Report{Ready: true, Status: statusLine(answer)}
	case errors.Is(err, vmhelper.ErrBusy): // that is an answer too
		w.answered = now
		w.last = sdnotify.Report{Ready: true, Status: "as many clients are connected as may be"}
	default:
		since := w.answered
		if since.IsZero() {
			since = w.began
		}
		w.last.Status = "does not answer at its socket: " + err.Error()
		if still := now.Sub(since); still >= answeredWithin {
			w.last.Stuck = fmt.Sprintf("no answer at its own socket for %v: %v", still.Round(time.Second), err)
		}
	}
	return w.last
}

// statusLine says what the helper does.
func statusLine(r *vmhelper.Report) string {
	if len(r.Trouble) > 0 {
		return strings.Join(r.Trouble, "; ")
	}
	return fmt.Sprintf("runs VMs for the agent; requests: %d now, %d done, %d failed", r.Working, r.Done, r.Failed)
}
