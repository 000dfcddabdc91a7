package hostile

import (
	"os"
	"testing"
	"time"

	"rutter/integration/program"
)

// rutter is the program, which TestMain builds.
var rutter string

func TestMain(m *testing.M) { os.Exit(program.Run(m, &rutter)) }

// A cluster of three bears a minute of them (ten seconds, unless RUTTER_LONG is
// set): nobody crashes, memory is what it was, others are answered as before.
func TestHostileCrowd(t *testing.T) {
	// Ten seconds are too short for the heaps of servers to be what they stay at:
	// then growth says only that nothing runs away.
	duration, most := 10*time.Second, int64(256)
	if os.Getenv("RUTTER_LONG") != "" {
		duration, most = time.Minute, 64
	}
	o, err := Stand(t.Context(), rutter, t.TempDir(), duration)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", o)
	if o.GrownMB > most {
		t.Errorf("the server's memory grew by %d MB, want at most %d", o.GrownMB, most)
	}
	if o.Failed > 0 || o.Written == 0 {
		t.Errorf("%d of %d writes beside them failed", o.Failed, o.Written)
	}
	// This machine's processors are theirs too: what is asked is that others wait
	// milliseconds, not for a deadline.
	if o.P99During > 250 && o.P99During > 10*o.P99Before {
		t.Errorf("the p99 of others' writes was %.1f ms, %.1f ms before", o.P99During, o.P99Before)
	}
}
