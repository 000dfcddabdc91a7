package rest

import (
	"context"
	"time"
)

// catchTime is how long the first pause of CatchUp takes.
const catchTime = 20 * time.Millisecond

// CatchUp pauses before a change is made again of what this server has, after the leader
// refused it for being out of date: this server may not have yet what the leader has. try
// counts the tries before, and nothing is waited for before the first. The pause doubles
// with each, and ends with ctx.
func CatchUp(ctx context.Context, try int) {
	if try <= 0 {
		return
	}
	pause := time.NewTimer(catchTime << min(try-1, 5))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
}
