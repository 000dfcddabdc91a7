package backup

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rutter/cmd/rutter/confine"
	"rutter/cmd/rutter/subprocess"
)

// Names of this program's other processes, as ps(1) shows them.
const (
	launcherName = "rutter-backup-launcher"
	workerName   = "rutter-backup-worker"
)

// lastWorker is how long a worker may take to end that the server waits for no longer. One
// that takes longer waits for its disk.
const lastWorker = 2 * time.Second

// Asked reports whether the program was started as a launcher or a worker: main calls
// Work then, and nothing else.
func Asked(args []string) bool {
	return len(args) == 1 && (args[0] == launcherName || args[0] == workerName)
}

// Work does the work of a launcher or a worker, and returns the exit code.
func Work(args []string) int {
	syscall.Umask(0o077)
	conn := os.NewFile(0, "server")
	var err error
	if args[0] == launcherName {
		err = launch(conn)
	} else {
		err = work(conn)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", args[0], err)
		return 1
	}
	return 0
}

// launch starts a worker for each connection that the server sends, one at a time. If
// the one before has not ended, because it waits for its disk, the connection is closed.
func launch(server *os.File) error {
	// The server reports it if capabilities cannot be dropped here.
	confine.DropLogged(confine.DACOverride, nil, slog.New(slog.DiscardHandler))
	before := make(chan struct{}) // closed when the last worker has ended
	close(before)
	for {
		conn, err := receive(server)
		if conn == nil || err != nil {
			return err
		}
		select {
		case <-before:
		case <-time.After(lastWorker):
			_ = conn.Close() // the server sees that
			continue
		}
		cmd := self(workerName, conn)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
		err = subprocess.Start(cmd)
		_ = conn.Close() // the worker has its own
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: start a worker: %v\n", launcherName, err)
			continue
		}
		ended := make(chan struct{})
		before = ended
		go func() {
			_ = cmd.Wait() // it told the server how it went
			close(ended)
		}()
	}
}

// self is a command of this program by another name.
func self(name string, stdin *os.File) *exec.Cmd {
	return &exec.Cmd{Path: "/proc/self/exe", Args: []string{name}, Stdin: stdin, Stderr: os.Stderr}
}

// receive returns the next connection that is sent over a socket; nil at its end.
func receive(from *os.File) (*os.File, error) {
	one, room := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	for {
		n, size, _, _, err := unix.Recvmsg(int(from.Fd()), one, room, unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || n == 0:
			return nil, err
		}
		messages, err := unix.ParseSocketControlMessage(room[:size])
		if err != nil || len(messages) != 1 {
			return nil, errors.Join(errors.New("a message without a connection"), err)
		}
		fds, err := unix.ParseUnixRights(&messages[0])
		if err != nil || len(fds) != 1 {
			return nil, errors.Join(errors.New("a message without a connection"), err)
		}
		return os.NewFile(uintptr(fds[0]), "server"), nil
	}
}

// Launcher is the server's end of its launcher. Job may be called concurrently.
type Launcher struct{ socket *os.File }

// Launch starts the launcher, which ends with this process. It must be started before
// the process restricts itself.
func Launch() (*Launcher, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "launcher"), os.NewFile(uintptr(pair[1]), "server")
	defer theirs.Close()
	cmd := self(launcherName, theirs)
	if err := subprocess.Start(cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", launcherName, err), ours.Close())
	}
	go func() { _ = cmd.Wait() }() // it ends when the socket is closed
	return &Launcher{ours}, nil
}

// Close ends the launcher. A worker that waits for its disk ends when it can.
func (l *Launcher) Close() error { return l.socket.Close() }

// start starts a job, and returns the connection to it.
func (l *Launcher) start() (net.Conn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "worker"), os.NewFile(uintptr(pair[1]), "server")
	defer ours.Close() // FileConn has its own
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	if err := unix.Sendmsg(int(l.socket.Fd()), []byte{0}, unix.UnixRights(int(theirs.Fd())), nil, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("%s has ended: restart the server to have backups: %w", launcherName, err), conn.Close())
	}
	return conn, nil
}
