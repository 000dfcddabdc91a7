package standin

import (
	"os"
	"testing"

	"rutter/cmd/rutter/netlab"
)

// The tests run again inside namespaces of their own.
func TestMain(m *testing.M) { os.Exit(netlab.Run(m)) }
