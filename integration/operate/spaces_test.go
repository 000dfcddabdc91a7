package operate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/subprocess"
)

// spaces are machines with the names and addresses of docs/deploy.md, each with a network, mounts
// and a host name of its own. So its commands run word for word: the files that they write are
// the machine's, and nothing of this one is changed. A compute node also has the link eth1 of the
// underlay, as docs/vms.md has it. What stands in for systemd, ssh and scp is below.
type spaces struct {
	t      *testing.T
	dir    string
	ground *subprocess.Process // has the machines' processes: they end with it
}

// inSpaces runs the test again in namespaces of its own, with a folder of what was built for it,
// and reports whether it is there.
func inSpaces(t *testing.T, built string) bool {
	t.Helper()
	if netlab.Inside() {
		if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
			t.Fatal(err)
		}
		return true
	}
	cmd := netlab.Enter("-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(cmd.Env, builtEnv+"="+built)
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

// builtEnv is the variable with that folder.
const builtEnv = "RUTTER_OPERATE_BUILT"

func output(cmd *exec.Cmd) (string, error) {
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// groundScript is the first process of the machines' processes: it waits for those whose parent
// has ended. What it says first is true when unshare has made the namespaces, and mounted /proc
// there: before, those of unshare's process are this test's, and a machine that was made there
// has a pid that means nothing to the others.
const groundScript = "echo " + groundReady + "; trap : CHLD; while :; do sleep 1000 & wait; done"

const groundReady = "the namespaces are there"

// newSpaces starts machines, with the units of their roles and what the pages take from the
// folder of this repository.
func newSpaces(t *testing.T, names ...string) *spaces {
	t.Helper()
	s := &spaces{t: t, dir: t.TempDir()}
	s.ground = &subprocess.Process{Name: "ground", Program: "unshare", LogFile: filepath.Join(s.dir, "ground.log"), Args: []string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", groundScript}}
	if err := s.ground.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.end)
	for s.ground.Tail() != groundReady {
		select {
		case <-s.ground.Ended():
			t.Fatalf("the machines' first process ended: %s", s.ground.Tail())
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := errors.Join(netlab.AddBridge("lan"), netlab.AddBridge("underlay")); err != nil {
		t.Fatal(err)
	}
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for file, script := range map[string]string{"make": makeScript, "enter": enterScript, "login": loginScript, "systemctl": spaceSystemctl, "ssh": spaceSSH, "scp": spaceSCP} {
		text := strings.NewReplacer("DIR", s.dir, "PROGRAM", program, "REPO", repo, "BUILT", os.Getenv(builtEnv)).Replace(script)
		if err := os.WriteFile(filepath.Join(s.dir, file), []byte("#!/bin/bash\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(s.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := output(s.onGround(filepath.Join(s.dir, "make"), name, strings.Replace(lastNumber(name), "admin", "250", 1))); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	return s
}

// onGround is a command beside the machines' processes.
func (s *spaces) onGround(args ...string) *exec.Cmd {
	of := fmt.Sprintf("/proc/%d/ns/", s.ground.PID())
	ctx, cancel := context.WithTimeout(context.Background(), scriptPatience)
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--mount=" + of + "mnt", "--pid=" + of + "pid_for_children", "--"}, args...)...)
	s.t.Cleanup(cancel)
	return cmd
}

// end ends all processes of the machines, and removes their cgroups.
func (s *spaces) end() {
	if s.t.Failed() {
		s.logs()
	}
	if err := s.ground.Stop(syscall.SIGKILL); err != nil {
		s.t.Error(err)
	}
	for end := time.Now().Add(nodePatience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		left := s.cgroups()
		for _, path := range left {
			_ = os.Remove(path) // until the last process is gone
		}
		if len(left) == 0 {
			return
		}
	}
	s.t.Errorf("cgroups are left: %v", s.cgroups())
}

// cgroups are those of the machines' VMs, the deepest first.
func (s *spaces) cgroups() (all []string) {
	base := "rutter-" + filepath.Base(filepath.Dir(s.dir))
	for _, pattern := range []string{"/sys/fs/cgroup/%s*/*", "/sys/fs/cgroup/*/%s*/*", "/sys/fs/cgroup/%s*", "/sys/fs/cgroup/*/%s*"} {
		found, _ := filepath.Glob(fmt.Sprintf(pattern, base)) // the pattern is a good one
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				all = append(all, path)
			}
		}
	}
	return all
}

func (s *spaces) logs() {
	paths, _ := filepath.Glob(filepath.Join(s.dir, "*", "log", "*.log")) // the pattern is a good one
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil {
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			s.t.Logf("the end of %s:\n%s", path, strings.Join(lines[max(0, len(lines)-15):], "\n"))
		}
	}
}

// sh runs a script on a machine, as root who has logged in.
func (s *spaces) sh(name, script string) (string, error) {
	return output(s.onGround(filepath.Join(s.dir, "enter"), name, strings.ReplaceAll(script, installed, here)))
}

func (s *spaces) must(name, script string) string {
	s.t.Helper()
	began := time.Now()
	out, err := s.sh(name, script)
	if err != nil {
		s.t.Fatalf("on %s: %v\n%s\n%s", name, err, script, out)
	}
	s.t.Logf("on %s, %s:\n%s\n%s", name, time.Since(began).Round(time.Millisecond), strings.TrimSpace(script), out)
	return out
}

// makeScript makes the machine $1, whose address ends with $2. Its pid is that of the process
// that holds its namespaces.
const makeScript = `set -eu
stage=DIR/$1
cd $stage
mkdir -p bin root opt run log varlib/libvirt varbackups varcache/libvirt run/libvirt run/netns varlib/rutter-vms
chmod 700 varlib/rutter-vms
cp -a /etc etc
mkdir -p etc/rutter etc/netns etc/profile.d etc/systemd/system
cp DIR/systemctl DIR/ssh DIR/scp bin
ln PROGRAM bin/rutter 2>/dev/null || cp PROGRAM bin/rutter
cp BUILT/cnitool bin
cp -r "REPO/scripts" root/scripts
sed -i s,/usr/bin/rutter,/usr/local/bin/rutter, root/scripts/libvirt/qemu-hook root/scripts/systemd/*.service
case $1 in
s*) cp root/scripts/systemd/rutter-server.service etc/systemd/system ;;
cn*) cp root/scripts/systemd/rutter-agent.service root/scripts/systemd/rutter-vms.service etc/systemd/system ;;
esac
unshare --net --mount --uts sh -c '
	set -e
	mount --make-rprivate /
	hostname $2
	for pair in etc:/etc bin:/usr/local/bin opt:/opt log:/var/log varbackups:/var/backups varlib:/var/lib varcache/libvirt:/var/cache/libvirt run:/run root:/root; do
		[ ! -d "${pair#*:}" ] || mount --bind "$1/${pair%%:*}" "${pair#*:}"
	done
	ip link set lo up
	echo $$ >"$1/pid"
	exec sleep infinity' sh $stage $1 >$stage/log/machine.log 2>&1 </dev/null &
for i in $(seq 6000); do [ ! -s pid ] || break; sleep 0.01; done
pid=$(cat pid)
ip link add l$1 mtu 1600 master lan up type veth peer name eth0 mtu 1500 netns $pid
nsenter -t $pid -n sh -ec "ip addr add 10.0.0.$2/24 dev eth0; ip link set eth0 up"
case $1 in cn*)
	n=${1#cn}
	ip link add u$1 mtu 1600 master underlay up type veth peer name eth1 mtu 1600 address 00:00:5e:00:53:0$n netns $pid
	nsenter -t $pid -n sh -ec "ip addr add 192.0.2.$n/24 dev eth1; ip link set eth1 up" ;;
esac
`

// enterScript runs script $2 on machine $1. Its cgroups are its own, as on a machine of its own.
const enterScript = `cgroup=/sys/fs/cgroup/rutter
[ ! -e /sys/fs/cgroup/memory/memory.limit_in_bytes ] || cgroup=/sys/fs/cgroup/memory/rutter
base=$(basename $(dirname DIR))
exec nsenter -t $(cat DIR/$1/pid) -n -m -u -- env -i HOME=/root RUTTER_VM_CGROUP=$cgroup-$base-$1 \
	PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin DIR/login "$2"
`

const loginScript = `cd /root
[ ! -e /etc/profile.d/rutter.sh ] || . /etc/profile.d/rutter.sh
exec bash -euo pipefail -c "$1"
`

// spaceSystemctl stands in for systemd, which is not process 1 here: it starts what the unit and
// its drop-ins say, with their capabilities, and libvirtd.
const spaceSystemctl = `set -eu
unit="${!#}"
unit=${unit%.service}
mkdir -p /run/units
pid=/run/units/$unit
says() { cat /etc/systemd/system/$unit.service /etc/systemd/system/$unit.service.d/*.conf 2>/dev/null | sed -n "s/^$1=//p"; }
lives() { [ -e $pid ] && kill -0 $(cat $pid) 2>/dev/null; }
start() {
	! lives || return 0
	if [ $unit = libvirtd ]; then
		rm -f /run/libvirt/libvirt-sock
		setsid libvirtd >>/var/log/libvirtd.log 2>&1 </dev/null &
		echo $! >$pid
		until virsh -q uri >/dev/null 2>&1; do lives || { cat /var/log/libvirtd.log; exit 1; }; sleep 0.05; done
		return 0
	fi
	says ExecStartPre | grep -v '^+' | while read -r line; do $line; done # those with + are about the unit's user, which root stands for
	caps=$(says CapabilityBoundingSet | tr 'A-Z ' 'a-z\n' | sed -n 's/^cap_/,+/p' | tr -d '\n')
	setsid setpriv --no-new-privs --inh-caps=-all --bounding-set=-all$caps $(says ExecStart) >>/var/log/$unit.log 2>&1 </dev/null &
	echo $! >$pid
}
stop() {
	lives || return 0
	kill -TERM $(cat $pid)
	for i in $(seq 1200); do lives || { rm $pid; return 0; }; sleep 0.05; done
	echo "$unit did not stop within 60 s" >&2
	exit 1
}
case "$1" in
daemon-reload) ;;
enable | start) start ;;
disable | stop) stop ;;
restart) stop; start ;;
*) echo "systemctl $*: the test knows no such call" >&2; exit 1 ;;
esac
`

// spaceFind gives the name of the machine that an argument such as root@10.0.0.1 is about.
const spaceFind = `set -euo pipefail
find() {
	n=${1##*10.0.0.}
	case "$n" in
	1?) name=cn${n#1} ;;
	*) name=s$n ;;
	esac
	[ -e DIR/$name/pid ] || { echo "$1: the test has no such machine" >&2; exit 1; }
}
`

// spaceSSH stands in for ssh(1).
const spaceSSH = spaceFind + `while [ $# -gt 0 ]; do
	case "$1" in
	--) shift; break ;;
	-[elop]) shift 2 ;;
	-*) shift ;;
	*) break ;;
	esac
done
find "$1"
shift
[ "${1:-}" != -- ] || shift
exec DIR/enter $name "$*"
`

// spaceSCP stands in for scp(1), to another machine.
const spaceSCP = spaceFind + `args=()
for arg in "$@"; do
	case "$arg" in
	root@*:*)
		find "${arg%%:*}"
		args+=("/proc/$(cat DIR/$name/pid)/root${arg#*:}") ;;
	*) args+=("$arg") ;;
	esac
done
exec cp "${args[@]}"
`
