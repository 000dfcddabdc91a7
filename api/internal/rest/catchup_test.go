package rest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestCatchUp: the pauses double up to a bound, and end with the context.
func TestCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := func(ctx context.Context, try int) time.Duration {
			begun := time.Now()
			CatchUp(ctx, try)
			return time.Since(begun)
		}
		for try, want := range map[int]time.Duration{
			-1: 0, 0: 0, 1: catchTime, 2: 2 * catchTime, 4: 8 * catchTime, 6: 32 * catchTime, 1000: 32 * catchTime,
		} {
			if got := took(t.Context(), try); got != want {
				t.Errorf("try %d: %v, want %v", try, got, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), catchTime/2)
		defer cancel()
		if got := took(ctx, 3); got != catchTime/2 {
			t.Errorf("with a context that ends after %v: %v", catchTime/2, got)
		}
	})
}
