package vmrun

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmrun/internal/qemu"
)

// ordinaryNetNS is where ip-netns(8) keeps named network namespaces.
const ordinaryNetNS = "/run/netns"

// ordinary reports whether the namespaces are in the folder of ip-netns(8).
func (r *Runner) ordinary() bool {
	return slices.Contains([]string{ordinaryNetNS, "/var" + ordinaryNetNS}, filepath.Clean(r.cfg.NetNS))
}

// QEMU returns the path of the QEMU that runs VMs with virtual hardware, or why there is
// none: system.QEMU.
func QEMU() (path string, err error) { return system.QEMU() }

// program is what runs as a VM.
type program struct {
	line []string
	// root is the folder that it runs in; "": it is a program of the node, which sees
	// the node's programs only.
	root string
	// machine is what QEMU runs; nil: the program is not QEMU. Its line is complete when
	// the machine's files are open.
	machine *qemu.Machine
	idle    bool // it only holds the VM's namespace
}

// programOf is the program that runs a VM: QEMU if the VM has virtual hardware and QEMU
// is installed, otherwise its init, and without one a process that sleeps. Errors:
// ErrNoRoot, and about fields.
func programOf(m system.Manifest) (program, error) {
	if m.Value.Hardware() {
		if path, err := system.QEMU(); err == nil {
			machine, err := qemu.Read(m)
			return program{line: []string{path}, machine: &machine}, err
		}
	}
	list, ok := m.Value.Get("init")
	if !ok {
		return program{line: []string{"sleep", "infinity"}, idle: true}, nil
	}
	line, err := words(list, "init")
	if err == nil && len(line) == 0 {
		err = errors.New("init is no list of strings with a program first")
	}
	if err != nil {
		return program{}, err
	}
	root := m.Value.Text("root")
	if root == "" {
		example := filepath.Join(exampleRoots, m.UUID.String())
		return program{}, fmt.Errorf("%w: it runs in a folder of its own, and not in this node's files: put the VM's files into a folder, below one that only root can enter, and name it in the manifest, as in \"root\": %q", ErrNoRoot, example)
	}
	return program{line: line, root: root}, nil
}

// exampleRoots is the folder that a refusal suggests.
const exampleRoots = "/var/lib/rutter-vms"

// words reads a list of strings.
func words(list vmdoc.Value, name string) ([]string, error) {
	var line []string
	for _, item := range list.Items() {
		word, isText := item.String()
		if !isText {
			return nil, fmt.Errorf("%s is no list of strings", name)
		}
		line = append(line, word)
	}
	return line, nil
}
