package moving

import (
	"os"
	"testing"

	"rutter/integration/program"
)

// rutter is the binary under test, built once for the whole run.
var rutter string

func TestMain(m *testing.M) { os.Exit(program.Run(m, &rutter)) }
