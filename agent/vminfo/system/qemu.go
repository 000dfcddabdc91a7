package system

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// QEMUNames are the names of QEMU for machines of each architecture.
var QEMUNames = map[string]string{"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64"}

// QEMU returns the path of the QEMU that runs VMs with virtual hardware, or why there
// is none. Without it, the init process of the manifest runs instead.
func QEMU() (path string, err error) {
	name, ok := QEMUNames[runtime.GOARCH]
	if !ok {
		return "", fmt.Errorf("no QEMU is known for %s", runtime.GOARCH)
	}
	return exec.LookPath(name)
}

// The sockets in QEMUFolder. Each serves one client at a time.
const (
	QEMUControl = "qmp"     // QMP, for commands: who starts and stops the VM
	QEMUEvents  = "events"  // QMP, for events: who watches the VM
	QEMUConsole = "console" // the serial console; what is written while no client is there is lost
)

// QEMUFolder is the folder of a VM's sockets, which only root can enter, in the folder of
// pid files.
func QEMUFolder(pids string, id log.UUID) string { return filepath.Join(pids, id.String()+".qemu") }

// QEMUAttach is where the link of a NIC of a VM that QEMU runs ends: a tap of the default
// name, unless the NIC says something else. Errors: those of vmdoc.AttachOf.
func QEMUAttach(nic vmdoc.Value) (vmdoc.Attach, error) {
	attach, has, err := vmdoc.AttachOf(nic)
	if has || err != nil {
		return attach, err
	}
	mac, err := log.ParseMAC(nic.Text("mac"))
	if err != nil {
		return attach, err
	}
	return vmdoc.Attach{Kind: vmdoc.AttachTap, Device: vmdoc.TapName(mac)}, nil
}
