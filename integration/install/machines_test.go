package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/subprocess"
)

const (
	// bootPatience bounds the boot of a machine, and scriptPatience a script on one.
	bootPatience   = 2 * time.Minute
	scriptPatience = 3 * time.Minute
)

// machines are containers with a systemd of their own as process 1, the addresses of
// docs/install.md on a bridge, and a clean Debian each. They are in namespaces of the test,
// and end with it.
type machines struct {
	t    *testing.T
	dir  string // a tmpfs
	base string
	all  map[string]*machine
}

type machine struct {
	name   string
	nspawn *subprocess.Process
	leader int // its process 1
}

// addresses are the last numbers of the machines' addresses.
var addresses = map[string]int{"s1": 1, "s2": 2, "s3": 3, "cn1": 11, "cn2": 12, "admin": 250}

// inSpaces runs the test again in namespaces of its own, with variables in its environment,
// and reports whether it is there.
func inSpaces(t *testing.T, env ...string) bool {
	t.Helper()
	if netlab.Inside() {
		if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
			t.Fatal(err)
		}
		return true
	}
	cmd := netlab.Enter("-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(cmd.Env, env...)
	out, err := output(cmd)
	t.Log(out)
	if netlab.Forbidden(err) {
		t.Skip(netlab.ErrForbidden)
	}
	if err != nil {
		t.Fatal(err)
	}
	return false
}

// boot starts machines, all at the same time, and waits until each has booted.
func boot(t *testing.T, base string, names ...string) *machines {
	t.Helper()
	m := &machines{t: t, dir: t.TempDir(), base: base, all: map[string]*machine{}}
	for folder, size := range map[string]string{m.dir: "size=3g", "/run/netns": "size=1m"} {
		err := os.MkdirAll(folder, 0o755)
		if err = errors.Join(err, unix.Mount("tmpfs", folder, "tmpfs", 0, "mode=755,"+size)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		m.end()
		m.removeCgroups()
		if err := errors.Join(unix.Unmount("/run/netns", unix.MNT_DETACH), unix.Unmount(m.dir, unix.MNT_DETACH)); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(netlab.AddBridge("lan"), netlab.AddBridge("underlay")); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		m.start(name)
	}
	var booting sync.WaitGroup
	for _, name := range names {
		booting.Go(func() { m.awaitBoot(name) })
	}
	booting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for _, name := range names {
		if strings.HasPrefix(name, "cn") {
			m.letWrite(name)
		}
	}
	return m
}

// wiring makes the network of machine $1, whose address ends with $2.
const wiring = `set -eu
ip netns add $1
ip link add l$1 mtu 1600 master lan up type veth peer name eth0 mtu 1500 netns $1
ip -n $1 link set lo up
ip -n $1 addr add 10.0.0.$2/24 dev eth0
ip -n $1 link set eth0 up
case $1 in cn*)
	n=${1#cn}
	ip link add u$1 mtu 1600 master underlay up type veth peer name eth1 mtu 1600 address 00:00:5e:00:53:0$n netns $1
	ip -n $1 addr add 192.0.2.$n/24 dev eth1
	ip -n $1 link set eth1 up ;;
esac
`

// start makes a machine and lets it boot.
func (m *machines) start(name string) {
	m.t.Helper()
	root := m.path(name, "root")
	for _, folder := range []string{"root", "upper", "work"} {
		if err := os.MkdirAll(m.path(name, folder), 0o755); err != nil {
			m.t.Fatal(err)
		}
	}
	layers := "lowerdir=" + m.base + ",upperdir=" + m.path(name, "upper") + ",workdir=" + m.path(name, "work")
	if err := unix.Mount("overlay", root, "overlay", 0, layers); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/hostname"), []byte(name+"\n"), 0o644); err != nil {
		m.t.Fatal(err)
	}
	if out, err := output(exec.Command("sh", "-c", wiring, "sh", name, strconv.Itoa(addresses[name]))); err != nil {
		m.t.Fatalf("%v\n%s", err, out)
	}
	p := &subprocess.Process{
		Name: name, Program: "systemd-nspawn", LogFile: m.path(name, "console"),
		Args: []string{
			"--quiet", "--directory=" + root, "--boot", "--register=no", "--keep-unit", "--link-journal=no", "--resolv-conf=off", "--timezone=off", "--console=pipe",
			"--network-namespace-path=/run/netns/" + name, "--machine=rutter-" + name + "-" + strconv.Itoa(os.Getpid()), "--hostname=" + name,
			// A machine of its own has these; what the units leave of them is what is tested.
			"--capability=CAP_NET_ADMIN,CAP_SYS_ADMIN,CAP_NET_RAW,CAP_NET_BROADCAST,CAP_SYS_PTRACE", "--bind=/dev/net/tun",
		},
	}
	if err := p.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.all[name] = &machine{name: name, nspawn: p}
}

// awaitBoot waits until a machine has booted. Not each unit of Debian works in a container.
func (m *machines) awaitBoot(name string) {
	one := m.all[name]
	for end := time.Now().Add(bootPatience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if !one.nspawn.Runs() {
			break
		}
		if one.leader == 0 {
			one.leader = leaderOf(one.nspawn.PID())
			continue
		}
		state, _ := m.sh(name, "systemctl is-system-running") // fails until it runs
		switch strings.TrimSpace(state) {
		case "running":
			return
		case "degraded":
			m.t.Logf("%s booted, but for: %s", name, m.must(name, "systemctl --failed --no-legend --plain"))
			return
		}
	}
	m.t.Errorf("%s did not boot:\n%s", name, one.nspawn.LastLines(40))
}

// leaderOf returns the process 1 of a container: the child of its nspawn that is in another
// process namespace; 0: there is none yet.
func leaderOf(nspawn int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", nspawn, nspawn))
	if err != nil {
		return 0
	}
	for _, word := range strings.Fields(string(text)) {
		comm, _ := os.ReadFile("/proc/" + word + "/comm")
		if pid, err := strconv.Atoi(word); err == nil && strings.TrimSpace(string(comm)) == "systemd" {
			return pid
		}
	}
	return 0
}

func (m *machines) path(name, file string) string { return filepath.Join(m.dir, name, file) }

// end powers the machines off, by ending what runs them.
func (m *machines) end() {
	for _, one := range m.all {
		if one.leader > 0 {
			_ = syscall.Kill(one.leader, syscall.SIGKILL) // it may have ended
		}
		if err := one.nspawn.Stop(syscall.SIGKILL); err != nil {
			m.t.Error(err)
		}
	}
}

// sh runs a script on a machine, as root who has logged in.
func (m *machines) sh(name, script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptPatience)
	defer cancel()
	return output(exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(m.all[name].leader), "-a", "env", "-i", "HOME=/root", "DEBIAN_FRONTEND=noninteractive",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "bash", "-euo", "pipefail", "-c",
		"cd /root\n[ ! -e /etc/profile.d/rutter.sh ] || . /etc/profile.d/rutter.sh\n"+script))
}

func (m *machines) must(name, script string) string {
	m.t.Helper()
	begun := time.Now()
	out, err := m.sh(name, script)
	if err != nil {
		m.journals()
		m.t.Fatalf("on %s: %v\n%s\n%s", name, err, script, out)
	}
	m.t.Logf("on %s, %s:\n%s\n%s", name, time.Since(begun).Round(time.Millisecond), strings.TrimSpace(script), out)
	return out
}

// put copies a file of this machine to one of the machines.
func (m *machines) put(name, from, to string) {
	m.t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		to = m.path(name, "root"+to)
		err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, 0o644))
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// journals logs the ends of the daemons' journals.
func (m *machines) journals() {
	for name := range m.all {
		out, err := m.sh(name, "journalctl --no-pager -o cat -n 25 -u 'rutter-*' -u ssh")
		m.t.Logf("journal of %s: %v\n%s", name, err, out)
	}
}
