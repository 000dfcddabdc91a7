package operate

import (
	"os"
	"testing"

	builder "rutter/integration/program"
)

// program is the binary under test, built once for the whole run.
var program string

func TestMain(m *testing.M) { os.Exit(builder.Run(m, &program)) }
