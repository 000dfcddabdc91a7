package api

import (
	"context"

	"rutter/api/auth/audit"
	"rutter/api/auth/guard"
	"rutter/api/rest"
	"rutter/log"
	"rutter/log/intake"
)

// noteBudget notes that a budget was in the way of a change, if that is what err
// says, and has the reader of the stream rest: what the client sends meanwhile
// stays in its own socket.
func (u *writeStream) noteBudget(err error) {
	exceeded := rest.ExceededOf(err)
	if exceeded == nil || u.over.Swap(true) {
		return
	}
	u.s.guard.CountLimit(guard.LimitBudget)
	u.s.guard.Note(audit.Record{Event: audit.Limited, Actor: u.actor, Serial: u.who.Serial, Remote: u.conn.RemoteAddr().String(), Asked: string(exceeded.Name)})
}

// restOver rests, if a budget was used up by what came before.
func (u *writeStream) restOver(ctx context.Context) error {
	if !u.over.Swap(false) {
		return nil
	}
	return u.rest(ctx, guard.LimitedPause)
}

// failedOf is what the client is told of a change that was not decided.
func failedOf(id log.UUID, err error) intake.Failed {
	f := intake.Failed{ChangeID: id, Code: codeOf(err), Text: err.Error()}
	if exceeded := rest.ExceededOf(err); exceeded != nil {
		f.After, f.Text = exceeded.Wait, exceeded.Error()
	}
	return f
}
