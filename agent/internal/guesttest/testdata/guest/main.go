// Command guest is the only program in the root folder of a test's VM. Its first argument
// says what it does; see actions.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const aLongTime = time.Hour

var actions = map[string]func(args []string){
	// sleep does nothing, and leaves signals to the kernel.
	"sleep": func([]string) { time.Sleep(aLongTime) },
	// stubborn ignores SIGTERM.
	"stubborn": func([]string) { signal.Ignore(syscall.SIGTERM); time.Sleep(aLongTime) },
	// parent starts two programs that sleep.
	"parent": func([]string) {
		for range 2 {
			if err := exec.Command("/guest", "sleep").Start(); err != nil {
				fail(err)
			}
		}
		time.Sleep(aLongTime)
	},
	"exit": func(args []string) {
		status, _ := strconv.Atoi(args[0])
		os.Exit(status)
	},
	"attack": attack,
}

func main() {
	actions[os.Args[1]](os.Args[2:])
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// attack tries what a VM's root may not, writes one line for each try to /report, and
// sleeps. args: a file of the node, a process of the node, a block device of the node as
// MAJOR:MINOR, and a link of the network namespace.
func attack(args []string) {
	file, process, device, link := args[0], args[1], args[2], args[3]
	var report strings.Builder
	say := func(what string, got any) { fmt.Fprintf(&report, "%s: %v\n", what, got) }
	try := func(what string, err error) {
		if err == nil {
			err = errors.New("DONE")
		}
		say(what, err)
	}
	say("uid", os.Getuid())
	say("pid", os.Getpid())
	_, err := os.ReadFile(file)
	try("file of the node", err)
	_, err = os.ReadFile(filepath.Join("/proc/1/root", "..", file))
	try("file of the node by /proc", err)
	for n := range 64 { // what was left open
		if dir, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", n)); err == nil && n > 2 && !strings.HasPrefix(dir, "anon_inode:") {
			try(fmt.Sprintf("descriptor %d, %s", n, dir), nil)
		}
	}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() {
			try("process "+e.Name(), nil)
		}
	}
	pid, _ := strconv.Atoi(process)
	try("signal to a process of the node", syscall.Kill(pid, 0))
	if err := syscall.Kill(-1, 0); err != nil && !errors.Is(err, syscall.ESRCH) {
		try("signal to all", err)
	}
	blockDevice(device, try)
	try("mount", syscall.Mount("none", "/dev", "tmpfs", 0, ""))
	for _, name := range []string{"net", "pid", "mnt", "user"} {
		if fd, err := os.Open("/proc/1/ns/" + name); err == nil {
			try("namespace "+name, unix.Setns(int(fd.Fd()), 0))
		}
	}
	user := exec.Command("/guest", "exit", "0")
	user.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS}
	try("user namespace", user.Run())
	try("setting of the kernel", os.WriteFile("/proc/sys/kernel/core_pattern", []byte("|/guest"), 0))
	try("more user namespaces", os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("9"), 0))
	linkDown(link, try)
	say("environment", strings.Join(os.Environ(), " "))
	text, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(text), "\n") {
		if name, value, _ := strings.Cut(line, ":"); name == "NoNewPrivs" || name == "Seccomp" || name == "CapBnd" || name == "CapEff" {
			say(name, strings.TrimSpace(value))
		}
	}
	ids, _ := os.ReadFile("/proc/self/uid_map")
	say("users", strings.Join(strings.Fields(string(ids)), " "))
	oom, _ := os.ReadFile("/proc/self/oom_score_adj")
	say("oom", strings.TrimSpace(string(oom)))
	listenLow(try)
	if err := errors.Join(os.WriteFile("/report.new", []byte(report.String()), 0o644), os.Rename("/report.new", "/report")); err != nil {
		fail(err)
	}
	time.Sleep(aLongTime)
}

// blockDevice makes a device file, and opens it and one that is in the root folder.
func blockDevice(device string, try func(string, error)) {
	text, minorText, _ := strings.Cut(device, ":")
	major, _ := strconv.Atoi(text)
	minor, _ := strconv.Atoi(minorText)
	try("device file", syscall.Mknod("/made", syscall.S_IFBLK|0o666, major<<8|minor))
	_, err := os.Open("/disk")
	try("device of the root folder", err)
	for _, dir := range []string{"/dev"} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if info, err := e.Info(); err == nil && info.Mode()&os.ModeDevice != 0 && info.Mode()&os.ModeCharDevice == 0 {
				try("block device "+e.Name(), nil)
			}
		}
	}
}

// linkDown takes a link of the network namespace down.
func linkDown(name string, try func(string, error)) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		fail(err)
	}
	try("link "+name+" down", setFlags(fd, name, 0))
}

// listenLow listens at port 80, as a server in a VM does, and opens the sockets of ping
// and of a program that forges addresses.
func listenLow(try func(string, error)) {
	_, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
	try("echo socket", err)
	_, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	try("packet socket", err)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: 80})
	}
	try("port 80", err)
}
