package replicas

import (
	"os"
	"testing"

	"rutter/integration/rig"
)

// program is the binary under test, built once for the whole run.
var program string

func TestMain(m *testing.M) { os.Exit(rig.Run(m, &program)) }
