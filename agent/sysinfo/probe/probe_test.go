package probe

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"rutter/agent/sysinfo"
	"rutter/log"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, root, path, text string) {
	t.Helper()
	name := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func node(t *testing.T) (Source, *[]Link) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"proc/sys/kernel/hostname": "cn7\n", "proc/sys/kernel/osrelease": "6.12.0\n", "proc/meminfo": "MemTotal:       8388608 kB\nMemFree: 1 kB\n",
		"proc/stat": "cpu 1 2\nbtime 1577836800\n", "proc/cpuinfo": "processor\t: 0\nmodel name\t: Fast One\n",
		"sys/class/dmi/id/sys_vendor": "Maker\n", "sys/class/dmi/id/product_serial": "S1\n",
		"sys/block/sda/size": "2000000000\n", "sys/block/sda/device/x": "", "sys/block/loop0/size": "8\n",
		"sys/class/net/eth0/device/x": "", "sys/class/net/bond0/bonding/mode": "802.3ad 4\n", "sys/class/net/bond0/bonding/slaves": "eth1 eth0\n",
		"sys/class/net/web0/tun_flags":                 "0x1002\n",
		"sys/class/net/eth0/bonding_slave/perm_hwaddr": "00:00:00:00:00:01\n", "sys/class/net/mv0/lower_eth0/x": "",
		"proc/net/vlan/ext0": "ext0  VID: 4\t REORDER_HDR: 1\nDevice: eth0\n", "tags": "# tags\nadmin_nic=00:00:00:00:00:01\nexternal_nic=bond0\n",
	} {
		write(t, root, path, text)
	}
	mac := func(n byte) net.HardwareAddr { return net.HardwareAddr{0, 0, 0, 0, 0, n} }
	links := &[]Link{
		{"lo", nil, true, netip.MustParseAddr("127.0.0.1")},
		{"eth0", mac(2), true, netip.MustParseAddr("10.99.99.7")}, // the bond's address
		{"mv0", mac(7), true, netip.Addr{}},
		{"bond0", mac(2), true, netip.Addr{}},
		{"ext0", mac(3), false, netip.MustParseAddr("10.88.0.2")},
		{"web0", mac(8), true, netip.Addr{}}, // a tap of a VM, whose name a domain chose
		{"sdcvxl10", mac(4), true, netip.Addr{}},
		{"vx10v2", mac(5), true, netip.Addr{}},
		{"veth1a2", mac(6), true, netip.Addr{}},
	}
	return Source{
		CN: log.UUID{1}, Agent: "test", Port: 5309, Setup: true, Root: root, Tags: filepath.Join(root, "tags"),
		Links: func() ([]Link, error) { return *links, nil },
	}, links
}

func TestGather(t *testing.T) {
	source, _ := node(t)
	i, err := source.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if i.Hostname != "cn7" || i.LiveImage != "6.12.0" || i.MemoryMiB != 8192 || i.BootTime != 1577836800 || i.CPUType != "Fast One" || i.Manufacturer != "Maker" ||
		i.Serial != "S1" || len(i.Disks) != 1 || i.Disks[0] != (sysinfo.Disk{Name: "sda", SizeGB: 1024}) || i.AdminIP().String() != "10.99.99.7" {
		t.Errorf("gathered %+v", i)
	}
	// Without the folder of the VMs' disks, their room is not told; with it, it is.
	if i.ZpoolGiB != 0 {
		t.Errorf("the room of no store is %d", i.ZpoolGiB)
	}
	source.Store = "/"
	var fs unix.Statfs_t
	if err := unix.Statfs("/", &fs); err != nil {
		t.Fatal(err)
	}
	if with, err := source.Gather(); err != nil || with.ZpoolGiB > fs.Blocks*uint64(fs.Frsize)>>30 || with.ZpoolGiB == 0 != (fs.Blocks*uint64(fs.Frsize)>>30 == 0) {
		t.Errorf("the room of / is %d, %v; its file system has %d blocks", with.ZpoolGiB, err, fs.Blocks)
	}
	var names []string
	for _, nic := range i.NICs {
		names = append(names, nic.Name)
	}
	if strings.Join(names, " ") != "bond0 eth0 ext0 mv0" || i.NICs[1].MAC != (log.MAC{5: 1}) || i.NICs[3].Host != "eth0" || !i.NICs[3].Virtual || i.NICs[0].Tags[0] != "external" || i.NICs[2].VLAN != 4 || i.NICs[2].Host != "eth0" || !i.NICs[2].Virtual || i.NICs[2].Up {
		t.Errorf("links %+v", i.NICs)
	}
	if len(i.Aggregations) != 1 || i.Aggregations[0].LACPMode != "active" || strings.Join(i.Aggregations[0].Members, " ") != "eth0 eth1" {
		t.Errorf("aggregations %+v", i.Aggregations)
	}
}

// What changed is sent; a refresh sends in each case.
func TestWatcher(t *testing.T) {
	source, links := node(t)
	sent := make(chan string, 16)
	w := NewWatcher(source, func(_ context.Context, text []byte) error { sent <- string(text); return nil }, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	first := <-sent
	if _, err := w.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	if again := <-sent; again != first {
		t.Errorf("a refresh sent %s, want %s", again, first)
	}
	*links = (*links)[:2]
	if _, err := w.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	if got := <-sent; strings.Contains(got, "bond0") || !strings.Contains(got, "eth0") {
		t.Errorf("sent %s", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The kernel's own links, as far as this machine has some, can be gathered.
func TestGatherHere(t *testing.T) {
	i, err := Source{CN: log.UUID{1}}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sysinfo.Parse(i.JSON()); err != nil {
		t.Errorf("%v in %s", err, i.JSON())
	}
}
