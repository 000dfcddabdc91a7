package vmm

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"rutter/log"
	"rutter/log/feed"
)

// latePeers do not know of sessions until a time.
type latePeers struct {
	peers
	until time.Time
}

func (p latePeers) Where(ctx context.Context, cn log.UUID) (string, error) {
	if time.Now().Before(p.until) {
		return "", nil
	}
	return p.peers.Where(ctx, cn)
}

// TestAskNewSession: a CN is found that connected to another server just now, of which the
// leader does not know yet. One that no server knows of is given up after sessionTime, and
// with the caller's context.
func TestAskNewSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, at := make([]*Service, 2), 1
		for i := range all {
			s, err := New(Config{Store: newFollower(newCentral()), NewID: newID, Peers: latePeers{peers{all, i, &at}, time.Now().Add(sessionTime / 2)}})
			if err != nil {
				t.Fatal(err)
			}
			all[i] = s
			defer run(s)()
		}
		cn := connect(all[1], testCN, map[string]answer{"GET /x": {200, "here"}})
		defer cn.line.Close()
		ask := func(ctx context.Context, cn log.UUID) (time.Duration, error) {
			begun := time.Now()
			_, err := all[0].AskConnected(ctx, cn, &feed.Request{Method: "GET", Path: "/x"})
			return time.Since(begun), err
		}
		if took, err := ask(t.Context(), testCN); err != nil || took > sessionTime {
			t.Errorf("a new session: after %v: %v", took, err)
		}
		if took, err := ask(t.Context(), testUUID(99)); !errors.Is(err, ErrUnreachable) || took != sessionTime {
			t.Errorf("no session: after %v: %v", took, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), sessionTime/4)
		defer cancel()
		if took, err := ask(ctx, testUUID(99)); !errors.Is(err, context.DeadlineExceeded) || took != sessionTime/4 {
			t.Errorf("a caller that does not wait: after %v: %v", took, err)
		}
	})
}
