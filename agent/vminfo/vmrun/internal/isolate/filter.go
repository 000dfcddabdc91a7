package isolate

import (
	"fmt"
	"unsafe"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// refusedCalls are the system calls that a VM's program does not get (EPERM). A process
// without capabilities on the node could not use most of them. The others have given
// rights to processes that had none, by faults of kernels.
var refusedCalls = []string{
	// Mounts and namespaces.
	"mount", "umount2", "pivot_root", "move_mount", "open_tree", "open_tree_attr", "mount_setattr", "fsopen", "fsconfig", "fsmount", "fspick", "setns", "unshare",
	// The kernel, its keys, its clock and its programs.
	"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd",
	"settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "syslog", "iopl", "ioperm",
	"keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd", "lookup_dcookie", "nfsservctl",
	"io_uring_setup", "io_uring_enter", "io_uring_register",
	// Files by their number, which no folder holds back.
	"open_by_handle_at", "name_to_handle_at",
}

// filter refuses system calls to this thread and the program that it executes: those of
// refusedCalls, and all of another architecture's (programs of 32 bits), whose numbers
// differ.
func filter() error {
	program, err := filterProgram()
	if err != nil {
		return fmt.Errorf("filter of system calls: %w", err)
	}
	list := make([]unix.SockFilter, len(program))
	for i, one := range program {
		list[i] = unix.SockFilter{Code: one.Op, Jt: one.Jt, Jf: one.Jf, K: one.K}
	}
	whole := unix.SockFprog{Len: uint16(len(list)), Filter: &list[0]}
	//nolint:gosec // prctl(2) takes the structure by its address
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&whole)), 0, 0); err != nil {
		return fmt.Errorf("filter of system calls: %w", err)
	}
	return nil
}

// archOffset is that of the architecture in struct seccomp_data (seccomp(2)).
const archOffset = 4

func filterProgram() ([]bpf.RawInstruction, error) {
	here, err := arch.GetInfo("")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range refusedCalls {
		if _, there := here.SyscallNames[name]; there {
			names = append(names, name)
		}
	}
	policy := seccomp.Policy{DefaultAction: seccomp.ActionAllow, Syscalls: []seccomp.SyscallGroup{{Action: seccomp.ActionErrno, Names: names}}}
	body, err := policy.Assemble()
	if err != nil {
		return nil, err
	}
	return bpf.Assemble(append([]bpf.Instruction{
		bpf.LoadAbsolute{Off: archOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(here.ID), SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	}, body...))
}
