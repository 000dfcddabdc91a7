package guest

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// packages is what an error tells the reader to install.
const packages = "apt-get install --no-install-recommends user-mode-linux busybox-static"

// modulesDir holds one folder per kernel version (Debian's user-mode-linux).
const modulesDir = "/usr/lib/uml/modules"

// moduleNames are the guest's modules in the order in which they must be loaded
// (spec/kernel.md, "The guest kernel for tests").
var moduleNames = []string{
	"crc-ccitt", "ipv6", "llc", "stp", "mrp", "garp", "8021q",
	"ip6_udp_tunnel", "udp_tunnel", "vxlan", "macvlan", "veth", "bridge",
	"dummy", "sch_netem", "tun", "nfnetlink", "nf_tables",
}

// host is what the machine has for a guest.
type host struct {
	kernel    string   // the User-Mode Linux program
	busybox   string   // a static busybox
	modules   []string // module files, in load order
	memoryDir string   // where the guest's memory file is mapped
}

// Available returns nil if this machine can run a guest with the default
// memory, else an error that says what is missing and how to get it, made to be
// the reason of a skip. It does not boot one.
func Available() error {
	_, err := findHost(DefaultMemoryMiB)
	return err
}

func findHost(memoryMiB int) (host, error) {
	var h host
	var err error
	if h.kernel, err = exec.LookPath("linux.uml"); err != nil {
		return h, fmt.Errorf("guest: no User-Mode Linux here (%w): %s", err, packages)
	}
	if h.busybox, err = exec.LookPath("busybox"); err != nil {
		return h, fmt.Errorf("guest: no busybox here (%w): %s", err, packages)
	}
	if err := checkStatic(h.busybox); err != nil {
		return h, fmt.Errorf("guest: %w: %s", err, packages)
	}
	version, err := exec.Command(h.kernel, "--version").Output()
	if err != nil {
		return h, fmt.Errorf("guest: ask %s for its version: %w", h.kernel, err)
	}
	h.modules, err = findModules(filepath.Join(modulesDir, strings.TrimSpace(string(version)), "kernel"))
	if err != nil {
		return h, fmt.Errorf("guest: modules: %w: %s", err, packages)
	}
	h.memoryDir, err = findMemoryDir(memoryMiB, []string{"/dev/shm", os.TempDir(), "/var/tmp"})
	return h, err
}

// findModules returns the files of moduleNames below dir, in their order.
func findModules(dir string) ([]string, error) {
	found := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok {
			found[name] = path
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	files := make([]string, 0, len(moduleNames))
	for _, name := range moduleNames {
		if found[name] == "" {
			return nil, fmt.Errorf("no %s.ko below %s", name, dir)
		}
		files = append(files, found[name])
	}
	return files, nil
}

// findMemoryDir returns the first of dirs where the guest's memory can be
// mapped executable and has room.
func findMemoryDir(memoryMiB int, dirs []string) (string, error) {
	var reasons []error
	for _, dir := range dirs {
		var stat unix.Statfs_t
		free := uint64(0)
		err := unix.Statfs(dir, &stat)
		if err == nil {
			free = stat.Bavail * uint64(stat.Bsize) >> 20
		}
		switch {
		case err != nil:
			reasons = append(reasons, fmt.Errorf("%s: %w", dir, err))
		case stat.Flags&unix.ST_NOEXEC != 0:
			reasons = append(reasons, fmt.Errorf("%s is mounted noexec", dir))
		case free < uint64(memoryMiB):
			reasons = append(reasons, fmt.Errorf("%s has %d MiB free", dir, free))
		case unix.Access(dir, unix.W_OK) != nil:
			reasons = append(reasons, fmt.Errorf("%s cannot be written to", dir))
		default:
			return dir, nil
		}
	}
	return "", fmt.Errorf("guest: no folder for %d MiB of memory: %w", memoryMiB, errors.Join(reasons...))
}

// checkStatic refuses an executable that needs a dynamic linker, which the
// guest does not have.
func checkStatic(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is not static (a Go program is with CGO_ENABLED=0)", path)
		}
	}
	return nil
}
