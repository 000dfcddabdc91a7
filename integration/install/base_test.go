package install

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const (
	// suite is the Debian of the machines, and archive where it comes from.
	suite   = "bookworm"
	archive = "http://deb.debian.org/debian"
	// packages are what a machine has beside the smallest Debian.
	packages = "systemd,systemd-sysv,dbus,iproute2,iputils-ping,curl,openssh-server,openssh-client"
	// cache is where a base is kept: making one takes a minute or two.
	cache = "/var/cache/rutter-tests"
)

// prepare makes a base ready for machines that stand for those of one operator: root of each
// is let in by each. Units that do nothing here, and would do it while a test runs, are off.
const prepare = `set -eu
mkdir -p root/.ssh
ssh-keygen -q -t ed25519 -N '' -f root/.ssh/id_ed25519
cp root/.ssh/id_ed25519.pub root/.ssh/authorized_keys
chmod 700 root/.ssh
printf 'Host *\n\tStrictHostKeyChecking accept-new\n\tLogLevel ERROR\n' > root/.ssh/config
printf '%s\n' '10.0.0.1 s1' '10.0.0.2 s2' '10.0.0.3 s3' '10.0.0.11 cn1' '10.0.0.12 cn2' '10.0.0.250 admin' >> etc/hosts
printf 'UseDNS no\n' > etc/ssh/sshd_config.d/test.conf
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer systemd-tmpfiles-clean.timer \
	console-getty.service getty@.service systemd-networkd-wait-online.service dev-hugepages.mount; do
	ln -sf /dev/null etc/systemd/system/$unit
done
rm -rf var/cache/apt/archives/*.deb
`

// archived are the packages that apt finds on a machine although it has no other network than
// the test's: with what they depend on, in a folder that is its archive.
const archived = "prometheus"

const archiving = `set -eu
chroot . apt-get update -qq
chroot . env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --download-only --no-install-recommends ` + archived + `
mkdir srv/debian
mv var/cache/apt/archives/*.deb srv/debian
for deb in srv/debian/*.deb; do
	dpkg-deb -f $deb
	printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' ${deb##*/} $(stat -c %s $deb) $(sha256sum $deb | cut -d' ' -f1)
done > srv/debian/Packages
echo 'deb [trusted=yes] file:/srv/debian ./' > etc/apt/sources.list
rm -rf var/lib/apt/lists/* var/cache/apt/*.bin
`

// base returns the folder of a Debian that no machine changes. It is made once, and kept.
func base(t *testing.T) string {
	t.Helper()
	key := sha256.Sum256([]byte(suite + archive + packages + prepare + archiving))
	folder := filepath.Join(cache, fmt.Sprintf("debian-%s-%x", suite, key[:6]))
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(folder+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() // it ends the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(folder); err == nil {
		return folder
	}
	fresh := folder + ".new"
	out, err := output(exec.Command("sh", "-c", `rm -rf "$1" && debootstrap --variant=minbase --include="$2" "$3" "$1" "$4" && cd "$1" && `+prepare+archiving, "sh", fresh, packages, suite, archive))
	if err != nil {
		lines := strings.Split(out, "\n")
		t.Fatalf("no Debian could be made from %s: %v\n%s", archive, err, strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
	if err := os.Rename(fresh, folder); err != nil {
		t.Fatal(err)
	}
	return folder
}

func output(cmd *exec.Cmd) (string, error) {
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// needs skips the test where machines cannot be made.
func needs(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("machines with systemd: run as root")
	}
	for name, pkg := range map[string]string{"debootstrap": "debootstrap", "systemd-nspawn": "systemd-container", "ip": "iproute2"} {
		if _, err := exec.LookPath(name); errors.Is(err, exec.ErrNotFound) {
			t.Skipf("needs %s, of the Debian package %s", name, pkg)
		}
	}
}
