package operate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hosts are folders that stand for machines: a command that runs on one sees
// its own /etc/rutter, /var/lib and so on, and its address of 127.0.0.0/8. The
// commands' texts are rewritten; nothing of this machine is touched.
type hosts struct {
	t      *testing.T
	dir    string
	prefix string // of the addresses, in place of 10.0.0.
}

// here is where the program is on hosts: a file in a folder of the host's, in place of one of
// /usr/bin, which is this machine's.
const here = "/usr/local/bin/rutter"

// folders of a host that the commands name.
var folders = []string{"/etc/rutter", "/etc/profile.d", "/var/lib/rutter", "/var/backups", "/usr/local/bin", "/root"}

// lastNumber is that of a host's address: 10.0.0.N.
func lastNumber(name string) string {
	if n, ok := strings.CutPrefix(name, "cn"); ok {
		return "1" + n
	}
	return strings.TrimPrefix(name, "s")
}

func newHosts(t *testing.T, names ...string) *hosts {
	t.Helper()
	h := &hosts{t: t, dir: t.TempDir(), prefix: freePrefix(t)}
	cases := ""
	for _, name := range names {
		cases += h.prefix + lastNumber(name) + ") there=" + h.path(name, "") + " ;;\n"
	}
	for _, name := range names {
		for _, folder := range folders {
			if err := os.MkdirAll(h.path(name, folder), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, at := range []string{here, "/root/rutter.new"} {
			if err := os.Link(program, h.path(name, at)); err != nil {
				copyFile(t, program, h.path(name, at))
			}
		}
		h.write(name, "/usr/local/bin/systemctl", h.rewrite(name, systemctl), 0o755)
		for command, script := range map[string]string{"ssh": ssh, "scp": scp} {
			text := strings.NewReplacer("CASES", cases, "ROOT", h.path(name, "")).Replace(toHost + script)
			h.write(name, "/usr/local/bin/"+command, text, 0o755)
		}
		t.Cleanup(func() { h.end(name) })
	}
	return h
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// freePrefix returns three numbers of loopback's network on which no program listens.
func freePrefix(t *testing.T) string {
	for range 20 {
		prefix := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), 1+rand.IntN(254))
		l, err := net.Listen("tcp", prefix+"1:7420")
		if err == nil {
			l.Close()
			return prefix
		}
	}
	t.Skip("needs addresses of 127.0.0.0/8 to listen on, which Linux has and others have not")
	return ""
}

func (h *hosts) path(name, path string) string { return filepath.Join(h.dir, name, path) }

func (h *hosts) write(name, path, text string, mode os.FileMode) {
	h.t.Helper()
	if err := os.WriteFile(h.path(name, path), []byte(text), mode); err != nil {
		h.t.Fatal(err)
	}
}

// rewrite makes a text that names paths and addresses one for a host.
func (h *hosts) rewrite(name, text string) string {
	text = strings.ReplaceAll(text, installed, here)
	for _, folder := range folders {
		text = strings.ReplaceAll(text, folder, h.path(name, folder))
	}
	return strings.ReplaceAll(strings.ReplaceAll(text, "10.0.0.", h.prefix), "ROOT", h.path(name, ""))
}

// systemctl stands in for systemd, which is not process 1 here: it starts what
// the unit's ExecStart says, and stops it with the unit's signal.
const systemctl = `#!/bin/bash
set -eu
pid=ROOT/pid
start() {
	if [ -e $pid ] && kill -0 $(cat $pid) 2>/dev/null; then return; fi
	setsid ROOT/exec >> ROOT/log 2>&1 < /dev/null &
	echo $! > $pid
}
stop() {
	[ -e $pid ] || return 0
	kill -TERM $(cat $pid) 2>/dev/null || true
	for i in $(seq 600); do
		kill -0 $(cat $pid) 2>/dev/null || { rm $pid; return 0; }
		sleep 0.1
	done
	echo "$1 did not stop within 60 s" >&2
	exit 1
}
case "${*/%rutter-agent/rutter-server}" in
daemon-reload) ;;
"start rutter-server" | "enable --now rutter-server") start ;;
"stop rutter-server" | "disable --now rutter-server") stop "${!#}" ;;
"restart rutter-server") stop "${!#}"; start ;;
*) echo "systemctl $*: the test knows no such call" >&2; exit 1 ;;
esac
`

// toHost begins what stands in for ssh(1) and scp(1): of the host whose address is
// asked for it sets the folder.
const toHost = `#!/bin/bash
set -euo pipefail
here=ROOT
find() {
	case "${1#root@}" in
	CASES
	*) echo "$1: the test has no such host" >&2; exit 1 ;;
	esac
}
`

// ssh runs a command on another host, as an operator who has logged in there. The
// command names this host's paths, since its text was rewritten for this one.
const ssh = `find "$1"
shift
command="$*"
cd "$there"
[ ! -e "$there/etc/profile.d/rutter.sh" ] || . "$there/etc/profile.d/rutter.sh"
PATH="$there/usr/local/bin:${PATH#*:}" HOME="$there" exec bash -euo pipefail -c "${command//"$here"/"$there"}"
`

// scp copies to another host.
const scp = `args=()
for arg in "$@"; do
	case "$arg" in
	root@*:*)
		find "${arg%%:*}"
		path="${arg#*:}"
		args+=("${path/#"$here"/"$there"}") ;;
	*) args+=("$arg") ;;
	esac
done
exec cp "${args[@]}"
`

// install puts the unit of a role on a host, whose command gets more arguments.
func (h *hosts) install(name, unit string, more ...string) {
	h.t.Helper()
	line := append([]string{h.rewrite(name, execStart(h.t, unit))}, more...)
	h.write(name, "/exec", "#!/bin/bash\nexec "+strings.Join(line, " ")+"\n", 0o755)
}

// installAgent is install of an agent that keeps to the host's folders and uses no
// port of this machine. Only root has what links need: for another user, the agent's
// unit starts no agent.
func (h *hosts) installAgent(name string) {
	h.t.Helper()
	h.install(name, "rutter-agent.service", "--svp", "off", "--listen", "off", "--socket", "off", "--vminfod", "off", "--manifests", "off",
		"--netns", h.path(name, "/netns"), "--etc-netns", h.path(name, "/etc/netns"))
	if os.Geteuid() != 0 {
		h.write(name, "/exec", "#!/bin/bash\nexec sleep infinity\n", 0o755)
	}
}

// scriptPatience bounds a script, which may wait for something that does not come.
const scriptPatience = 5 * time.Minute

// sh runs a script on a host, as an operator who has logged in.
func (h *hosts) sh(name, script string) (string, error) {
	profile := h.path(name, "/etc/profile.d/rutter.sh")
	ctx, cancel := context.WithTimeout(context.Background(), scriptPatience) // also for what ends with the test
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", "[ ! -e "+profile+" ] || . "+profile+"\n"+h.rewrite(name, script))
	cmd.Dir = h.path(name, "")
	cmd.Env = []string{"PATH=" + h.path(name, "/usr/local/bin") + ":" + os.Getenv("PATH"), "HOME=" + cmd.Dir}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (h *hosts) must(name, script string) string {
	h.t.Helper()
	out, err := h.sh(name, script)
	if err != nil {
		h.showLogs()
		h.t.Fatalf("on %s: %v\n%s\n%s", name, err, script, out)
	}
	return out
}

// lose kills a host and takes its disk away.
func (h *hosts) lose(name string) {
	h.must(name, "kill -KILL $(cat ROOT/pid) && rm -r ROOT/pid /var/lib/rutter/*")
}

func (h *hosts) end(name string) {
	if _, err := h.sh(name, "[ ! -e ROOT/pid ] || kill -KILL $(cat ROOT/pid) 2>/dev/null || true"); err != nil {
		h.t.Error(err)
	}
}

func (h *hosts) showLogs() {
	logs, err := filepath.Glob(filepath.Join(h.dir, "*", "log"))
	if err != nil {
		h.t.Log(err)
	}
	for _, name := range logs {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		h.t.Logf("the end of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
}
