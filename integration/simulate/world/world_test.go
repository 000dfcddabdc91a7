package world_test

import (
	"testing"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/world"
)

func TestWorld(t *testing.T) {
	r := world.Run(t, history.History{Seed: 1, Servers: 3, Agents: 5, Clients: 2, Duration: 60 * time.Second}, world.Options{Patience: 15 * time.Second})
	for _, f := range r.Failures {
		t.Error(f)
	}
	t.Log(r.Simulated, r.Real, r.Coverage)
}
