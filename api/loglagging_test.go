package api

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rutter/log/feed"
)

// TestFollowersOfALaggingServer: a server that lags sends those away who follow the log, in
// either form, and takes no new ones; the log as it has it can be read.
func TestFollowersOfALaggingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lags atomic.Bool
		b := bedOf(t, Config{Version: "test", Lagging: func() error {
			if lags.Load() {
				return errors.New("12 s behind")
			}
			return nil
		}})
		b.furnish()
		ended := make(chan string, 2)
		for _, accept := range []string{"application/x-ndjson", feed.LogMedia} {
			go func() { ended <- b.call("GET", "/log?follow=1&after=1", "", "Accept", accept).Body.String() }()
		}
		time.Sleep(time.Minute)
		if len(ended) > 0 {
			t.Fatalf("a follower ended: %q", <-ended)
		}
		lags.Store(true)
		time.Sleep(2 * time.Second)
		if len(ended) != 2 {
			t.Errorf("%d of 2 followers were sent away", len(ended))
		}
		lags.Store(len(ended) == 2) // else they are never sent away
		for range 2 {
			if body := <-ended; body == "" || strings.Contains(body, "error") {
				t.Errorf("a follower got %q", body)
			}
		}
		w := b.call("GET", "/log?follow=1&after=1", "")
		if w.Code != 503 || !strings.Contains(w.Body.String(), "12 s behind") {
			t.Errorf("a new follower gets %s", pretty(w))
		}
		if w := b.call("GET", "/log?after=1", ""); w.Code != 200 {
			t.Errorf("one who reads to the head gets %s", pretty(w))
		}
		lags.Store(false)
		if got := seqsOf(t, b, "follow=1&after=1&until=3"); got != "2 3" {
			t.Errorf("a follower of a server that has caught up reads %s", got)
		}
	})
}
