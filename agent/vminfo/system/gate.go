package system

import (
	"bytes"
	"fmt"
	"time"
)

// gateScript waits for a line until the process is in its cgroup; its children
// are then born there. exec keeps its process number.
const gateScript = `read go && exec "$@" </dev/null`

// Gate is the command that runs a line once it is told to; enter is what it runs in.
func Gate(enter, line []string) []string {
	command := append(enter, "/bin/sh", "-c", gateScript, "init")
	return append(command, line...)
}

// Became reports whether a process has become the VM's program. Between its
// programs, as a zombie and when it is gone it has no command line.
func Became(pid int) bool {
	text, err := readSmall(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && len(text) > 0 && !bytes.Contains(text, []byte(gateScript))
}

// gated reports whether a process is not yet the VM's program, but waits to be it.
// One that is between two programs is waited for.
func gated(pid int) bool {
	for range execLooks {
		text, err := readSmall(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || len(text) > 0 {
			return bytes.Contains(text, []byte(gateScript))
		}
		time.Sleep(InitLook)
	}
	return false
}

const (
	// InitLook is the pause between two looks at whether a process has become the
	// VM's program.
	InitLook = 500 * time.Microsecond
	// execLooks bounds the looks at a process that has no command line.
	execLooks = 200
)
