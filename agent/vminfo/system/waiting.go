package system

import (
	"bytes"
	"fmt"
	"time"
)

// waitScript waits for a line until the process is in its cgroup; its children
// are then born there. exec keeps its process number.
const waitScript = `read go && exec "$@" </dev/null`

// WaitingCommand is the command that runs a line once it is told to; enter is what it runs in.
func WaitingCommand(enter, line []string) []string {
	command := append(enter, "/bin/sh", "-c", waitScript, "init")
	return append(command, line...)
}

// HasStarted reports whether a process has become the VM's program. Between its
// programs, as a zombie and when it is gone it has no command line.
func HasStarted(pid int) bool {
	text, err := readSmall(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && len(text) > 0 && !bytes.Contains(text, []byte(waitScript))
}

// isWaiting reports whether a process is not yet the VM's program, but waits to be it.
// One that is between two programs is waited for.
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
	// InitPoll is the pause between two looks at whether a process has become the
	// VM's program.
	InitPoll = 500 * time.Microsecond
	// maxExecPolls bounds the looks at a process that has no command line.
	maxExecPolls = 200
)
