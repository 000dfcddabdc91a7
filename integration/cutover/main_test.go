package cutover

import (
	"os"
	"testing"

	"rutter/integration/rig"
)

// rutter is the binary under test, built once for the whole run.
var rutter string

func TestMain(m *testing.M) { os.Exit(rig.Run(m, &rutter)) }
