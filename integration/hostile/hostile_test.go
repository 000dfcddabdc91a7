package hostile

import (
	"os"
	"testing"
	"time"

	"rutter/integration/rig"
)

// rutter is the program, which TestMain builds.
var rutter string

func TestMain(m *testing.M) { os.Exit(rig.Run(m, &rutter)) }

// mostMB is what they may make a server hold (issue 9).
const mostMB = 64

// mostP99 is what others may wait on a busy machine, in milliseconds.
const mostP99 = 5000

// A cluster of three bears a minute of them (ten seconds, unless RUTTER_LONG is
// set): no server crashes, memory is what it was, others are answered as before.
func TestHostileCrowd(t *testing.T) {
	duration := 10 * time.Second
	if os.Getenv("RUTTER_LONG") != "" {
		duration = time.Minute
	}
	o, err := Stand(t.Context(), rutter, t.TempDir(), duration)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", o)
	if o.GrownMB > mostMB {
		t.Errorf("the server's memory grew by %d MB, want at most %d", o.GrownMB, mostMB)
	}
	if o.Failed > 0 || o.Written == 0 {
		t.Errorf("%d of %d writes beside them failed", o.Failed, o.Written)
	}
	// This machine's processors are theirs too, and a busy one has few: what is asked
	// is that others do not come near a deadline.
	if o.P99During > mostP99 && o.P99During > 10*o.P99Before {
		t.Errorf("the p99 of others' writes was %.1f ms, %.1f ms before", o.P99During, o.P99Before)
	}
}
