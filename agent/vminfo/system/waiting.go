package system

import (
	"bytes"
	"fmt"
	"time"
)

// WaitingName is the only argument of a process that waits until it is in the cgroups of
// its VM, and then becomes the VM's program (vmrun/internal/isolate).
const WaitingName = "rutter-vm-begin"

var waitingLine = []byte(WaitingName + "\x00")

// isWaiting reports whether a process still waits to become the VM's program. It waits
// for a process that is between two programs.
func isWaiting(pid int) bool {
	for range maxExecPolls {
		text, err := readSmall(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || len(text) > 0 {
			return bytes.Equal(text, waitingLine)
		}
		time.Sleep(execPoll)
	}
	return false
}

const (
	// execPoll is the pause between two checks whether a process has a command line.
	execPoll = 500 * time.Microsecond
	// maxExecPolls bounds the checks of a process that has no command line.
	maxExecPolls = 200
)
