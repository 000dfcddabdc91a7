package integration

import (
	"os"
	"testing"

	"rutter/integration/rig"
)

// program is the binary under test, built once for the whole run.
var program string

func TestMain(m *testing.M) {
	if text := os.Getenv(otherUserVariable); text != "" {
		asOtherUser(text)
		return
	}
	os.Exit(rig.Run(m, &program))
}
