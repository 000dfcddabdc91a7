package qemu

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rutter/agent/vminfo/system"
)

var write = flag.Bool("write", false, "write the golden lines")

const uuid = "5595d88c-6e4d-4bda-b58e-000000000001"

func read(t *testing.T, fields string) (Machine, error) {
	t.Helper()
	m, err := system.ParseManifest(fmt.Appendf(nil, `{"uuid":%q%s}`, uuid, fields))
	if err != nil {
		t.Fatal(err)
	}
	return Read(m)
}

// lines are manifests, and the architecture of the node, whose command lines are golden.
var lines = []struct{ name, arch, fields string }{
	{"least", "amd64", ``},
	{"whole", "amd64", `,"accel":"tcg","ram":512,"vcpus":2,"disks":[{"path":"/dev/zvol/a"},{"path":"/b","format":"qcow2","boot":true}],"nics":[{"mac":"90:b8:d0:00:00:01"},{"mac":"90:b8:d0:00:00:02","primary":true,"attach":{"kind":"tap","device":"mine"}}],"kernel":"/boot/vmlinuz","initrd":"/boot/initrd","append":"console=ttyS0 quiet","qemu_extra_opts":["-cpu","host"]`},
	{"network", "amd64", `,"boot":"order=nc","disks":[{"path":"/a"}],"nics":[{"mac":"90:b8:d0:00:00:01"}]`},
	{"disks only", "amd64", `,"boot":"order=cd","disks":[{"path":"/a"}],"nics":[{"mac":"90:b8:d0:00:00:01"}]`},
	{"in the namespace", "amd64", `,"nics":[{"mac":"90:b8:d0:00:00:01","attach":{"kind":"namespace"}}],"qemu_extra_opts":["-netdev","tap,id=a,ifname=mine,script=no,downscript=no"]`},
	{"microvm", "amd64", `,"disks":[{"path":"/a"}],"nics":[{"mac":"90:b8:d0:00:00:01"}],"qemu_extra_opts":["-M","type=microvm,rtc=on"]`},
	{"arm", "arm64", `,"nics":[{"mac":"90:b8:d0:00:00:01"}]`},
}

// TestLine: the command lines of machines are those of the golden file.
func TestLine(t *testing.T) {
	was := hostArch
	defer func() { hostArch = was }()
	var got strings.Builder
	for _, l := range lines {
		hostArch = l.arch
		q, err := read(t, l.fields)
		if err != nil {
			t.Fatalf("%s: %v", l.name, err)
		}
		d := Descriptors{Control: 4, Events: 5, Console: 6}
		next := 7
		for range q.Disks {
			d.Disks = append(d.Disks, next)
			next++
		}
		for i := range q.NICs {
			d.Taps = append(d.Taps, Tap{FD: next, MTU: 1400, Vhost: i * 20})
			next++
		}
		d.Kernel, d.Initrd = next, next+1
		fmt.Fprintf(&got, "# %s, on %s; devices %v\n%s\n\n", l.name, l.arch, q.Devices(), strings.Join(q.Line("qemu", d), "\n"))
	}
	golden := filepath.Join("testdata", "lines.txt")
	if *write {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != got.String() {
		t.Errorf("got %s\n(%v; -write writes it)", got.String(), err)
	}
}

// TestExtraOptions: qemu_extra_opts may describe a machine, and may neither open files, sockets
// and programs, nor lift what confines QEMU, in whatever form that is written.
func TestExtraOptions(t *testing.T) {
	extra := func(words ...string) string {
		text, err := json.Marshal(words)
		if err != nil {
			t.Fatal(err)
		}
		return `,"qemu_extra_opts":` + string(text)
	}
	for _, words := range [][]string{
		{"-cpu", "host"},
		{"--smp", "4,sockets=2"},
		{"-device", "virtio-rng-pci"},
		{"-object", "rng-builtin,id=r"},
		{"-no-reboot"},
		{"-bios", "/usr/share/ovmf/OVMF.fd"},
		{"-drive", "if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE.fd"},
		{"-netdev", "user,id=a,restrict=on"},
		{"-global", "virtio-net-pci.romfile="},
		{"-fw_cfg", "name=opt/a,string=b"},
	} {
		if q, err := read(t, extra(words...)); err != nil || len(q.Extra) != len(words) {
			t.Errorf("%v: %v, %v", words, q.Extra, err)
		}
	}
	for _, words := range [][]string{
		{"-readconfig", "/usr/a"},
		{"--readconfig", "/usr/a"},
		{"-writeconfig", "/a"},
		{"-chardev", "file,id=a,path=/a"},
		{"-monitor", "stdio"},
		{"-mon", "a"},
		{"-qmp", "unix:/a"},
		{"-serial", "file:/a"},
		{"-parallel", "/dev/lp0"},
		{"-incoming", "exec:id"},
		{"-plugin", "/usr/a.so"},
		{"-semihosting"},
		{"-semihosting-config", "arg=a"},
		{"-D", "/a"},
		{"-trace", "file=/a"},
		{"-L", "/a"},
		{"-gdb", "tcp::1"},
		{"-s"},
		{"-fsdev", "local,id=a,path=/"},
		{"-virtfs", "local"},
		{"-tpmdev", "passthrough"},
		{"-set", "drive.a.file=/a"},
		{"-loadvm", "a"},
		{"-hda", "/a"},
		{"-cdrom", "/a"},
		{"-blockdev", "file"},
		{"-vnc", ":1"},
		{"-net", "tap"},
		{"-nic", "tap"},
		{"-acpitable", "file=/a"},
		{"-sandbox", "off"},
		{"-add-fd", "fd=4,set=1"},
		{"-kernel", "/a"},
		{"/etc/passwd"},
		{"@/a"},
		{"-no-reboot", "/a"},
		{"-cpu"},
		{"---cpu", "a"},
		{"cpu", "host"},
		{"-fw_cfg", "name=opt/a,file=/etc/shadow"},
		{"-smbios", "file=/a"},
		{"-drive", "file=/a"},
		{"-drive", "file.filename=/usr/../a"},
		{"-drive", "file=json:{}"},
		{"-drive", "file=/dev/fdset/1"},
		{"-netdev", "tap,id=a"},
		{"-netdev", "tap,id=a,script=/a,downscript=no"},
		{"-netdev", "tap,id=a,script=no,downscript=no,script=/a"},
		{"-netdev", "tap,id=a,fd=3,script=no,downscript=no"},
		{"-netdev", "type=bridge,helper=/a"},
		{"-netdev", "user,guestfwd=tcp:1-cmd:id"},
		{"-netdev", "user,smb=/"},
		{"-netdev", "user,tftp=/"},
		{"-netdev", `{"type":"tap"}`},
		{"-netdev", "vhost-user,chardev=a"},
		{"-object", "memory-backend-file,id=a,mem-path=/a"},
		{"-object", "rng-random,filename=/a"},
		{"-object", "secret,id=a,file=/a"},
		{"-object", "qom-type=input-linux,evdev=/a"},
		{"-object", "filter-dump,file=/a"},
		{"-machine", "q35,kernel=/a"},
		{"-M", "q35,accel=tcg"},
		{"-machine", "dumpdtb=/a"},
		{"-device", "loader,file=/a"},
		{"-device", "virtio-net-pci,vhostfd=3"},
		{"-global", "loader.file=/a"},
		{"-global", "driver=loader,property=file,value=/a"},
		{"-bios", "/a"},
		{"-bios", "/usr/../a"},
		{"-icount", "rr=record,rrfile=/a"},
	} {
		if _, err := read(t, extra(words...)); err == nil || !strings.Contains(err.Error(), "qemu_extra_opts") {
			t.Errorf("%v: %v, want it refused", words, err)
		}
	}
}

// TestReadRefuses: each field that cannot be is named.
func TestReadRefuses(t *testing.T) {
	const attached = `,"nics":[{"mac":"90:b8:d0:00:00:01","attach":`
	nics, disks := strings.Repeat(`{"mac":"90:b8:d0:00:00:01"},`, MaxNICs+1), strings.Repeat(`{"path":"/a"},`, MaxDisks+1)
	for fields, want := range map[string]string{
		`,"accel":"hvf"`:                                    `accel "hvf": want "kvm", or "tcg"`,
		`,"disks":[{}]`:                                     "disks.0.path",
		`,"disks":[{"path":"a"}]`:                           "disks.0.path",
		`,"disks":[{"path":"/a","format":"vmdk"}]`:          "disks.0.format",
		`,"disks":[` + strings.TrimSuffix(disks, ",") + `]`: "may have 16",
		`,"nics":[` + strings.TrimSuffix(nics, ",") + `]`:   "may have 8",
		attached + `{"kind":"x"}}]`:                         "nics.0.attach.kind",
		attached + `{"kind":"tap","device":"a,fd=3"}}]`:     "nics.0.attach.device",
		`,"boot":"cd"`:                                      "want order=",
		`,"boot":"order=cx"`:                                "want order=",
		`,"kernel":"vmlinuz"`:                               "from / on",
		`,"initrd":"/a"`:                                    "add kernel",
		`,"append":"quiet"`:                                 "add kernel",
		`,"kernel":"/a","append":"` + strings.Repeat("a", MaxAppend+1) + `"`: "may have 2047",
		`,"qemu_extra_opts":[true]`:             "no list of strings",
		`,"qemu_extra_opts":["-sandbox","off"]`: "leave it out",
		`,"qemu_extra_opts":["--runas","root"]`: "leave it out",
		`,"qemu_extra_opts":["-run-with","x"]`:  "leave it out",
		`,"qemu_extra_opts":["-add-fd","fd=4"]`: "leave it out",
		`,"qemu_extra_opts":["-accel","kvm"]`:   "leave it out",
		`,"qemu_extra_opts":["-kernel","/x"]`:   "leave it out",
	} {
		if _, err := read(t, fields); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", fields, err, want)
		}
	}
}

// TestNoKVM: without KVM a machine is refused with the remedy, unless it is emulated.
func TestNoKVM(t *testing.T) {
	was := kvmPath
	defer func() { kvmPath = was }()
	for _, path := range []string{filepath.Join(t.TempDir(), "kvm"), os.DevNull} {
		kvmPath = path
		q, err := read(t, ``)
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Check(); err == nil || !strings.Contains(err.Error(), `"accel": "tcg"`) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
		if q, err = read(t, `,"accel":"tcg"`); err != nil || q.Check() != nil {
			t.Errorf("emulated: %v, %v", err, q.Check())
		}
	}
}
