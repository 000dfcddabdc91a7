package system

import (
	"errors"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestExitStatus: a status is vmadm's number of it, and is there once the process is
// reaped.
func TestExitStatus(t *testing.T) {
	for _, test := range []struct {
		script string
		want   int
	}{{"exit 0", 0}, {"exit 3", 3}, {"kill -TERM $$", -15}, {"kill -KILL $$", -9}} {
		cmd := exec.Command("sh", "-c", "read x; "+test.script)
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = in.Close()
		set := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for n := 0; n == 0; {
			n, _ = unix.Poll(set, -1) // a signal ends it early
		}
		if got, err := ExitStatus(cmd.Process.Pid, fd); errors.Is(err, ErrNoExitStatus) {
			t.Skip(err)
		} else if zero := test.want == 0; zero != errors.Is(err, ErrNotReaped) || !zero && (err != nil || got != test.want) {
			t.Errorf("%s: before it is reaped: %d, %v", test.script, got, err)
		}
		_ = cmd.Wait()
		if got, err := ExitStatus(cmd.Process.Pid, fd); err != nil || got != test.want {
			t.Errorf("%s: got %d, %v, want %d", test.script, got, err, test.want)
		}
		_ = unix.Close(fd)
	}
	if got := exitStatus(11 | 128); got != -139 {
		t.Errorf("a core of signal 11: got %d, want -139", got)
	}
}
