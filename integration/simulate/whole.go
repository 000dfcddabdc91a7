package simulate

import (
	"maps"
	"os"
	"testing"
	"time"

	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/disk"
	"rutter/integration/simulate/history"
	"rutter/integration/simulate/oracle"
	"rutter/integration/simulate/world"
)

// patience is how long simulated time may stand still, in real time.
const patience = time.Minute

// whole is the world of the whole cluster, with the disks of d, if that is not nil.
func whole(d *disk.Disk) Run {
	return func(t *testing.T, h history.History, logFile string) Result {
		o := world.Options{Patience: patience, Disk: d}
		if logFile != "" {
			f, err := os.Create(logFile)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			o.Log = f
		}
		report := world.Run(t, h, o)
		records := report.Seen.Records()
		counts := coverage.Count(records)
		maps.Copy(counts, report.Coverage)
		failures := append(report.Failures, oracle.Judge(records)...)
		return Result{Failures: failures, Coverage: counts, Simulated: report.Simulated}
	}
}
