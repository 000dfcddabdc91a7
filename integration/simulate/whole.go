package simulate

import (
	"io"
	"maps"
	"os"
	"testing"

	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/history"
	"rutter/integration/simulate/world"
)

// whole runs a history of the whole cluster.
func whole(t *testing.T, h history.History, logFile string) Result {
	o := world.Options{Patience: 2 * Limit} // the worker has a limit of its own
	if logFile != "" {
		f, err := os.Create(logFile)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		o.Log = io.Writer(f)
	}
	report := world.Run(t, h, o)
	counts := coverage.Count(report.Seen.Records())
	maps.Copy(counts, report.Coverage)
	return Result{Failures: report.Failures, Coverage: counts, Simulated: report.Simulated}
}
