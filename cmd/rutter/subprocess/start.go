package subprocess

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Start is cmd.Start of a program that is killed when this process ends, also when this
// process is killed. So a killed test leaves no server behind. Programs that the
// program itself started are not killed. A program that must run in a namespace of the
// calling thread cannot be started by Start.
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

// starter returns the channel of a goroutine that never ends, which starts the programs
// on one thread.
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
