package isolate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
)

// init takes over in the process that Begin starts, in whatever executable this package
// is. It runs on the main thread, which becomes the program.
func init() {
	if len(os.Args) != 1 || os.Args[0] != system.WaitingName {
		return
	}
	runtime.LockOSThread() // capabilities and the filter are a thread's
	unix.CloseOnExec(channelFile)
	channel := os.NewFile(channelFile, "channel")
	err := become(channel)
	r := report{Failure: err.Error()}
	var failed execError
	status := exitSetup
	if errors.As(err, &failed) {
		r.Errno, status = int(failed.errno), exitExec
	}
	text, _ := json.Marshal(r) // it has text and a number
	_, _ = channel.Write(text)
	os.Exit(status)
}

// Exit statuses of a process that does not become the program.
const (
	exitSetup = 125
	exitExec  = 127
)

// execError is the failure of execve(2).
type execError struct {
	program string
	errno   syscall.Errno
}

// Error implements error.
func (e execError) Error() string { return e.program + ": " + e.errno.Error() }

// become makes this process the program. It returns only an error.
func become(channel *os.File) error {
	o, root, err := receive(channel)
	if err != nil {
		return fmt.Errorf("the order: %w", err)
	}
	// The node's programs may protect themselves from the killer of processes without
	// memory. A VM's program is not one of them.
	if err := raiseOOMScore(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(o.Hostname)); err != nil {
		return fmt.Errorf("host name %q: %w", o.Hostname, err)
	}
	if err := enterRoot(&o, root); err != nil {
		return err
	}
	powers := guestPowers
	if !o.HasRoot {
		powers = nil
	}
	if err := giveUp(powers); err != nil {
		return err
	}
	// What the node's programs left open without O_CLOEXEC ends here.
	if err := unix.CloseRange(uint(FirstFile+o.Files), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("open files: %w", err)
	}
	if len(o.Line) == 0 {
		return errors.New("no program")
	}
	path := o.Line[0]
	if !strings.Contains(path, "/") {
		found, err := exec.LookPath(path)
		if err != nil {
			return execError{path, syscall.ENOENT}
		}
		path = found
	}
	if _, err := channel.Write(readyMark); err != nil {
		return err
	}
	var errno syscall.Errno
	errors.As(syscall.Exec(path, o.Line, os.Environ()), &errno)
	return execError{path, errno}
}

// receive reads the order and the mount of the root, -1 if there is none.
func receive(channel *os.File) (o order, root int, err error) {
	first, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, rn, _, _, err := unix.Recvmsg(channelFile, first, rights, unix.MSG_CMSG_CLOEXEC)
	for errors.Is(err, unix.EINTR) {
		n, rn, _, _, err = unix.Recvmsg(channelFile, first, rights, unix.MSG_CMSG_CLOEXEC)
	}
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return o, -1, fmt.Errorf("the node's end is closed: %w", err)
	}
	root = -1
	messages, err := unix.ParseSocketControlMessage(rights[:rn])
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil && len(fds) == 1 {
			root = fds[0]
		}
	}
	if err != nil {
		return o, root, err
	}
	text, err := io.ReadAll(channel)
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err == nil && o.HasRoot != (root >= 0) {
		err = errors.New("the root's mount is missing")
	}
	return o, root, err
}

func raiseOOMScore() error {
	const name = "/proc/self/oom_score_adj"
	text, err := os.ReadFile(name)
	if err == nil && strings.HasPrefix(string(text), "-") {
		err = os.WriteFile(name, []byte("0"), 0)
	}
	return err
}
