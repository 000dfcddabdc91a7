package subprocess

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Start is cmd.Start of a program that ends with this process, however this one
// ends: a test that is killed, or has no time left, leaves no server behind. The
// program is killed; what it started itself is its own matter. One that is to run in
// a namespace of the calling thread is started there, not by Start.
//
// The kernel sends the signal when the thread ends that started the program
// (prctl(2), PR_SET_PDEATHSIG), so all are started by one thread, which ends last.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	s := start{cmd: cmd, done: make(chan error)}
	starter() <- s
	return <-s.done
}

type start struct {
	cmd  *exec.Cmd
	done chan error
}

// starter returns where starts go: to a goroutine that never ends, for its thread.
var starter = sync.OnceValue(func() chan<- start {
	starts := make(chan start)
	go func() {
		runtime.LockOSThread()
		for s := range starts {
			s.done <- s.cmd.Start()
		}
	}()
	return starts
})
