package guest

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// exitFile is where the guest leaves the program's exit code.
	exitFile = "exit"
	// programDir and modulesIn are folders of the guest.
	programDir = "/program"
	modulesIn  = "/modules"
)

// mountPoints are the guest's folders that a mount hides.
var mountPoints = []string{"/dev", "/proc", "/sys", "/run", "/tmp"}

// initScript is the guest's first process. The console is opened only after
// /dev is mounted, by the kernel or here; before that there is none (hostfs has
// no device files).
const initScript = `#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root TMPDIR=/tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
grep -q ' /dev ' /proc/mounts || mount -t devtmpfs devtmpfs /dev
exec </dev/null >/dev/console 2>&1
ln -s /proc/self/fd /dev/fd
mkdir /dev/shm /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
ip link set lo up
cd /
for module in %s; do
	insmod "$module" || echo "guest: cannot load $module"
done
%s
%s
echo $? >/exit.part
mv /exit.part /` + exitFile + `
poweroff -f
`

// buildRoot makes the folder that is the guest's root file system.
func buildRoot(root string, h host, cfg Config) error {
	if cfg.Binary == "" {
		return fmt.Errorf("config: no Binary")
	}
	if err := checkStatic(cfg.Binary); err != nil {
		return fmt.Errorf("config: Binary: %w", err)
	}
	for _, pair := range cfg.Env {
		if name, _, ok := strings.Cut(pair, "="); !ok || !isName(name) {
			return fmt.Errorf("config: Env: %q: want KEY=value", pair)
		}
	}
	program := path.Join(programDir, filepath.Base(cfg.Binary))
	files := map[string]string{"/bin/busybox": h.busybox, program: cfg.Binary}
	for _, module := range h.modules {
		files[path.Join(modulesIn, filepath.Base(module))] = module
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Files)) {
		if err := checkGuestPath(name); err != nil {
			return fmt.Errorf("config: Files: %w", err)
		}
		if files[name] != "" {
			return fmt.Errorf("config: Files: %q is the guest's own", name)
		}
		files[name] = cfg.Files[name]
	}

	for _, dir := range append([]string{"/bin", "/root"}, mountPoints...) {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := copyFile(filepath.Join(root, name), files[name]); err != nil {
			return fmt.Errorf("copy to %s: %w", name, err)
		}
	}
	return os.WriteFile(filepath.Join(root, "init"), []byte(scriptFor(h, cfg, program)), 0o755)
}

// scriptFor fills initScript.
func scriptFor(h host, cfg Config, program string) string {
	modules := make([]string, 0, len(h.modules))
	for _, module := range h.modules {
		modules = append(modules, quote(path.Join(modulesIn, filepath.Base(module))))
	}
	var env strings.Builder
	for _, pair := range append([]string{Inside + "=1"}, cfg.Env...) {
		name, value, _ := strings.Cut(pair, "=")
		fmt.Fprintf(&env, "export %s=%s\n", name, quote(value))
	}
	command := quote(program)
	for _, arg := range cfg.Args {
		command += " " + quote(arg)
	}
	return fmt.Sprintf(initScript, strings.Join(modules, " "), env.String(), command)
}

// quote makes one word of text for a POSIX shell.
func quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// isName reports whether name can be a shell variable.
func isName(name string) bool {
	for i, r := range name {
		letter := r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

func checkGuestPath(name string) error {
	if !path.IsAbs(name) || path.Clean(name) != name || name == "/" {
		return fmt.Errorf("%q: want an absolute, clean guest path", name)
	}
	for _, hidden := range mountPoints {
		if name == hidden || strings.HasPrefix(name, hidden+"/") {
			return fmt.Errorf("%q: a mount on %s would hide it; choose another place", name, hidden)
		}
	}
	if name == "/init" || name == "/"+exitFile {
		return fmt.Errorf("%q is the guest's own", name)
	}
	return nil
}

// copyFile copies the regular file from to the new file to, with its
// permissions, making the folders above it.
func copyFile(to, from string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", from)
	}
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		return err
	}
	return dst.Close()
}
