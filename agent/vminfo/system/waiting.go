package system

import (
	"bytes"
	"fmt"
	"time"
)

// waitScript waits for a line until the process is in its cgroup, so that its children
// begin there. exec keeps its process number.
const waitScript = `read go && exec "$@" </dev/null`

// WaitingCommand is the command that waits for a line on its input and then runs line;
// enter is the command that it runs in.
func WaitingCommand(enter, line []string) []string {
	command := append(enter, "/bin/sh", "-c", waitScript, "init")
	return append(command, line...)
}

// HasStarted reports whether a process has become the VM's program. Between two
// programs, as a zombie and after its end it has no command line.
func HasStarted(pid int) bool {
	text, err := readSmall(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && len(text) > 0 && !bytes.Contains(text, []byte(waitScript))
}

// isWaiting reports whether a process still waits to become the VM's program. It waits
// for a process that is between two programs.
func isWaiting(pid int) bool {
	for range maxExecPolls {
		text, err := readSmall(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || len(text) > 0 {
			return bytes.Contains(text, []byte(waitScript))
		}
		time.Sleep(InitPoll)
	}
	return false
}

const (
	// InitPoll is the pause between two checks whether a process has become the VM's
	// program.
	InitPoll = 500 * time.Microsecond
	// maxExecPolls bounds the checks of a process that has no command line.
	maxExecPolls = 200
)
