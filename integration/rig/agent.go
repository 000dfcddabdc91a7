package rig

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"rutter/agent"
)

// Agent runs an agent in this process until the test ends. Its folder is one of the
// test's and it logs nothing, where cfg does not say otherwise.
func Agent(t testing.TB, cfg agent.Config) *agent.Agent {
	t.Helper()
	if cfg.Folder == "" {
		cfg.Folder = t.TempDir()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, a.Close()); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return a
}
