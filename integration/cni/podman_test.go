package cni

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestPodman: containers that podman starts on two nodes reach each other, with the resolvers
// of their network, through a crash of the agent. No registry is asked: their files are
// busybox alone.
func TestPodman(t *testing.T) {
	t.Parallel()
	programs := map[string]string{}
	for _, name := range []string{"podman", "crun", "conmon", "busybox"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("no %s here: %v; Debian has it as a package (scripts/debian-packages.txt)", name, err)
		}
		programs[name] = path
	}
	if !enter(t) {
		return
	}
	// crun refuses a machine whose cgroups are of both versions, as some CI machines are, also
	// where containers are told to have none. It sees none here.
	if err := unix.Mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	pods := [2]*podman{}
	for i, n := range w.nodes {
		n.conf("web", "")
		n.conf("closed", "")
		pods[i] = newPodman(t, n, programs)
	}
	stop := reapConmon(programs["conmon"])
	defer stop()
	first, second := pods[0], pods[1]
	if out, err := first.run("run", "-d", "--name", "refused", "--cgroups=disabled", "--network", "closed", "--rootfs", first.rootfs, "/bin/busybox", "sleep", "1000"); err == nil || !strings.Contains(err.Error(), `network "closed"`) {
		t.Errorf("a network that the log has not: got %q, %v, want the reason", out, err)
	}
	for _, p := range pods {
		must[string](t)(p.run("run", "-d", "--name", "web0", "--cgroups=disabled", "--network", "web", "--rootfs", p.rootfs, "/bin/busybox", "sleep", "1000"))
	}
	ip := second.address(t)
	ping := func() {
		t.Helper()
		if out, err := first.run("exec", "web0", "/bin/busybox", "ping", "-c", "1", "-W", "60", ip.String()); err != nil {
			t.Fatal(out, err)
		}
	}
	ping()
	if out := must[string](t)(first.run("exec", "web0", "/bin/busybox", "cat", "/etc/resolv.conf")); !strings.Contains(out, "nameserver 10.0.0.2\n") {
		t.Errorf("resolv.conf: got %q, want the network's resolver", out)
	}
	vms, err := w.cluster.Client.List(t.Context(), "/vms", map[string][]string{"server_uuid": {first.node.cn.String()}})
	if err != nil || len(vms) != 1 || vms[0]["alias"] != "web0" {
		t.Errorf("the log has VMs %v, %v; want one, with podman's name", vms, err)
	}
	if err := first.node.agent.Stop(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ping()
	first.node.start()
	ping()
	for _, p := range pods {
		must[string](t)(p.run("rm", "-f", "-t", "0", "web0"))
		p.node.none()
		if left, err := filepath.Glob(filepath.Join(p.node.zones, "*")); err != nil || len(left) > 0 {
			t.Errorf("names of namespaces that are left: %v, %v", left, err)
		}
	}
}

// podman is podman on one node.
type podman struct {
	node   *node
	path   string
	rootfs string
}

func newPodman(t *testing.T, n *node, programs map[string]string) *podman {
	p := &podman{node: n, path: programs["podman"], rootfs: filepath.Join(n.dir, "rootfs")}
	settings := fmt.Sprintf(`[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
conmon_path = [%q]
[engine.runtimes]
crun = [%q]
[network]
network_backend = "cni"
cni_plugin_dirs = [%q]
network_config_dir = %q
`, programs["conmon"], programs["crun"], filepath.Join(n.dir, "bin"), filepath.Join(n.dir, "conf"))
	busybox := filepath.Join(p.rootfs, "bin", "busybox")
	err := errors.Join(os.WriteFile(filepath.Join(n.dir, "containers.conf"), []byte(settings), 0o600), os.MkdirAll(filepath.Dir(busybox), 0o755), copyProgram(programs["busybox"], busybox))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func (p *podman) run(args ...string) (string, error) {
	place := func(name string) string { return fmt.Sprintf("/run/podman%d/%s", p.node.i, name) } // of 50 characters at most
	return p.node.run(p.node.w.t.Context(), []string{"CONTAINERS_CONF=" + filepath.Join(p.node.dir, "containers.conf")}, "", p.path,
		append([]string{"--root", place("root"), "--runroot", place("run"), "--tmpdir", place("tmp"), "--storage-driver", "vfs"}, args...)...)
}

// address is that of the container.
func (p *podman) address(t *testing.T) netip.Addr {
	t.Helper()
	words := strings.Fields(must[string](t)(p.run("exec", "web0", "/bin/busybox", "ip", "-4", "-o", "addr", "show", "eth0")))
	at := slices.Index(words, "inet")
	if at < 0 {
		t.Fatalf("no address in %v", words)
	}
	return netip.MustParsePrefix(words[at+1]).Addr()
}

// reapConmon collects the processes of conmon that have ended, until stop is called: podman
// waits for that, and process 1 here is this test.
func reapConmon(path string) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			case <-time.After(20 * time.Millisecond):
			}
			dirs, _ := filepath.Glob("/proc/[0-9]*")
			for _, dir := range dirs {
				text, err := os.ReadFile(filepath.Join(dir, "stat"))
				if err == nil && strings.Contains(string(text), "("+filepath.Base(path)+") Z 1 ") {
					pid, _ := strconv.Atoi(filepath.Base(dir))
					_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
				}
			}
		}
	}()
	return func() { close(ended); <-done }
}
