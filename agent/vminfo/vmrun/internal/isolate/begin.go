package isolate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/system"
)

// Errors of Run.
var (
	// ErrNotFound: there is no such program in the root folder.
	ErrNotFound = errors.New("there is no such file")
	// ErrCannotRun: the program is there, and the kernel does not execute it.
	ErrCannotRun = errors.New("is there such a file, and is it executable?")
	// ErrEnded: the process ended before it became the program.
	ErrEnded = errors.New("it ended before the program began")
)

// Config says what runs, and with what.
type Config struct {
	// NetNS is the path of the network namespace. It belongs to the node: the program
	// uses its links, and cannot change them.
	NetNS string
	// Base is the first of UserCount user and group IDs of the node that the program's
	// users 0 to UserCount-1 are. None may be those of another user of the node.
	Base uint32
	// Root is the folder that becomes the program's file system, with the node's IDs 0
	// to UserCount-1 on disk for the program's. nil: the node's own programs
	// (systemFolders), which cannot be written. Then the program has no capability.
	Root *os.File
	// Hostname is the name of the machine that the program sees.
	Hostname string
	// Resolver is a file that is mounted at /etc/resolv.conf of Root if it exists.
	Resolver string
	// Line is the program and its arguments.
	Line []string
	// Files stay open in the program, from descriptor FirstFile on.
	Files []*os.File
	// Stderr is the program's standard error; nil: what it writes is lost.
	Stderr *os.File
	// Devices are names in /dev besides devices that the program may open, if the
	// node has them, and DeviceGroup the node's group for them; 0: none.
	Devices     []string
	DeviceGroup uint32
}

const (
	// UserCount is how many user IDs a VM has, the same as of systemd-nspawn(1).
	UserCount = 1 << 16
	// FirstFile is the descriptor of the first of Config.Files in the program.
	FirstFile = channelFile + 1
	// channelFile is the waiting process's end of the socket pair.
	channelFile = 3
)

// order is what the waiting process receives.
type order struct {
	HasRoot  bool
	Hostname string
	Resolver string
	Line     []string
	Devices  []string
	Files    int // that stay open, from FirstFile on
}

// report is what the waiting process sends if it does not become the program.
type report struct {
	Failure string
	Errno   int // of exec; 0: it did not come to that
}

// readyMark is sent before the program is executed: the end after it is success.
var readyMark = []byte("+")

// Child is a process that waits, or has become the program.
type Child struct {
	PID     int
	cmd     *exec.Cmd
	cfg     Config
	channel *net.UnixConn
}

// Begin starts a process that waits in the namespaces. Run or Abort must follow.
func Begin(cfg Config) (*Child, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket pair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "channel"), os.NewFile(uintptr(pair[1]), "channel")
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	_ = ours.Close() // conn has its own
	if err != nil {
		return nil, fmt.Errorf("socket pair: %w", err)
	}
	c := &Child{cmd: command(&cfg, theirs), cfg: cfg, channel: conn.(*net.UnixConn)} // it is a pair of AF_UNIX
	if err := startIn(c.cmd, cfg.NetNS); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%w (needs user namespaces, CAP_SYS_ADMIN, CAP_SETUID and CAP_SETGID, and %s executable by all users)", err, c.cmd.Path)
	}
	c.PID = c.cmd.Process.Pid
	return c, nil
}

// command is the process that waits.
func command(cfg *Config, channel *os.File) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe") //nolint:noctx // the VM outlives the request
	cmd.Args = []string{system.WaitingName}
	cmd.Env = []string{"PATH=" + searchPath, "HOME=/root"} // nothing of this process's own
	if cfg.Stderr != nil {
		cmd.Stderr = cfg.Stderr
	}
	cmd.ExtraFiles = append([]*os.File{channel}, cfg.Files...)
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(cfg.Base), Size: UserCount}}
	groups, member := ids, []uint32(nil)
	if cfg.DeviceGroup != 0 {
		groups, member = append(groups[:1:1], syscall.SysProcIDMap{ContainerID: UserCount, HostID: int(cfg.DeviceGroup), Size: 1}), []uint32{UserCount}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:      true,
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: ids, GidMappings: groups, GidMappingsEnableSetgroups: true,
		Credential: &syscall.Credential{Uid: 0, Gid: 0, Groups: member},
	}
	return cmd
}

// searchPath is where a program without a path is looked for.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// netSettings are written in each network namespace that a VM gets, because the
// program has no capability there: it may bind any port, and send ICMP echo requests.
var netSettings = map[string]string{
	"/proc/sys/net/ipv4/ip_unprivileged_port_start": "0",
	"/proc/sys/net/ipv4/ping_group_range":           "0 2147483647",
}

// startIn starts a command in a network namespace. The namespace belongs to this
// process's user namespace, so it is entered before the command gets its own.
func startIn(cmd *exec.Cmd, path string) error {
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	defer ns.Close()
	done := make(chan error)
	go func() { done <- startThere(cmd, ns) }()
	return <-done
}

// startThere starts a command in a network namespace, with a thread of its own.
func startThere(cmd *exec.Cmd, ns *os.File) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	defer home.Close()
	// The thread goes back: one that stays locked ends with its goroutine, except the
	// first of the process, which would stay and keep the VM's namespace.
	defer func() {
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network namespace %s: %w", ns.Name(), err)
	}
	for name, value := range netSettings {
		if err := os.WriteFile(name, []byte(value), 0); err != nil {
			return fmt.Errorf("network namespace %s: %w", ns.Name(), err)
		}
	}
	return cmd.Start()
}

// Run lets the process become the program, and returns when it has. Errors: those of
// this package, ctx's, and what of the namespaces or mounts cannot be made.
func (c *Child) Run(ctx context.Context) error {
	defer c.channel.Close()
	defer context.AfterFunc(ctx, func() { _ = c.channel.SetDeadline(time.Unix(1, 0)) })()
	if err := c.send(); err != nil {
		return errors.Join(ctx.Err(), err)
	}
	text, err := io.ReadAll(c.channel) // the end comes when the program is executed
	if err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("the process %d does not become the program: %w", c.PID, err))
	}
	failed, ready := bytes.CutPrefix(text, readyMark)
	if len(failed) == 0 {
		if ready {
			return nil
		}
		return fmt.Errorf("%w: process %d", ErrEnded, c.PID)
	}
	var r report
	if err := json.Unmarshal(failed, &r); err != nil {
		return fmt.Errorf("the process %d sent %.80q: %w", c.PID, text, err)
	}
	switch syscall.Errno(r.Errno) {
	case 0:
		return errors.New(r.Failure)
	case syscall.ENOENT:
		return fmt.Errorf("%w (%s)", ErrNotFound, r.Failure)
	}
	return fmt.Errorf("%w (%s)", ErrCannotRun, r.Failure)
}

// send sends the order, with the root's mount.
func (c *Child) send() error {
	text, err := json.Marshal(order{HasRoot: c.cfg.Root != nil, Hostname: c.cfg.Hostname, Resolver: c.cfg.Resolver, Line: c.cfg.Line, Devices: c.cfg.Devices, Files: len(c.cfg.Files)})
	if err != nil {
		return err
	}
	var rights []byte
	if c.cfg.Root != nil {
		mount, err := mappedMount(c.cfg.Root, c.PID)
		if err != nil {
			return err
		}
		defer unix.Close(mount)
		rights = unix.UnixRights(mount)
	}
	if _, _, err := c.channel.WriteMsgUnix([]byte{0}, rights, nil); err != nil {
		return fmt.Errorf("the process %d: %w", c.PID, err)
	}
	_, err = c.channel.Write(text)
	if err = errors.Join(err, c.channel.CloseWrite()); err != nil {
		return fmt.Errorf("the process %d: %w", c.PID, err)
	}
	return nil
}

// mappedMount is a mount of a folder, and of nothing that is mounted below it, in which
// the IDs on disk are those of the process's user namespace. Devices in it are none, and
// files of other users' rights (setuid) give none.
func mappedMount(root *os.File, pid int) (int, error) {
	users, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return -1, fmt.Errorf("user namespace: %w", err)
	}
	defer users.Close()
	mount, err := unix.OpenTree(int(root.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, fmt.Errorf("root %s: %w", root.Name(), err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Userns_fd: uint64(users.Fd())}
	if err := unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		_ = unix.Close(mount)
		return -1, fmt.Errorf("root %s: its file system cannot be mounted with the VM's users: %w; put it on ext4, xfs, btrfs or overlayfs (Linux 5.19 or later)", root.Name(), err)
	}
	return mount, nil
}

// Wait returns when the process has ended, with its exit status as exec.Cmd has it. It
// must be called once: a process that is not waited for stays a zombie.
func (c *Child) Wait() error { return c.cmd.Wait() }

// Abort ends a process that has not been let go. Wait must follow.
func (c *Child) Abort() {
	_ = c.channel.Close()
	_ = c.cmd.Process.Kill()
}
