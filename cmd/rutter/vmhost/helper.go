package vmhost

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/agent/vminfo/vmhelper"
	"rutter/cmd/rutter/confine"
	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// HelperFlag names the helper that runs VMs.
func HelperFlag() cli.Flag {
	return &cli.StringFlag{Name: "vm-helper", EnvVars: []string{"RUTTER_VM_HELPER"}, Value: helperAuto, Usage: "`SOCKET` of the helper that runs the VMs of manifests (rutter vms); auto: " + vmhelper.DefaultSocket + " if its folder is there, or if this agent has not the capabilities to run VMs itself; off: this agent runs them"}
}

// Values of HelperFlag that are no socket.
const (
	helperAuto = "auto"
	helperOff  = "off"
)

// HelperOf reads HelperFlag: socket is "" if this process runs the VMs of f itself. asked: the
// flag names the helper, or its folder is there.
func HelperOf(text string, f Folders) (socket string, asked bool, err error) {
	switch {
	case f.Manifests == "off" || text == helperOff:
		return "", false, nil
	case text == helperAuto && isOurs(filepath.Dir(vmhelper.DefaultSocket)):
		return vmhelper.DefaultSocket, true, nil
	case text == helperAuto && !runsItself():
		return vmhelper.DefaultSocket, false, nil
	case text == helperAuto:
		return "", false, nil
	}
	if err := (localhttp.Socket{Path: text}).Check(); err != nil {
		return "", false, term.Usagef("--vm-helper %q: want the path of a socket, auto or off: %w", text, err)
	}
	return text, true, nil
}

// isOurs reports whether there is a folder that belongs to root or to this process's user.
func isOurs(folder string) bool {
	info, err := os.Stat(folder)
	if err != nil || !info.IsDir() {
		return false
	}
	s, is := info.Sys().(*syscall.Stat_t)
	return is && (s.Uid == 0 || int64(s.Uid) == int64(os.Geteuid()))
}

// runsItself reports whether this process has what it takes to run VMs. One that could not
// even make links is a test's, or will say so.
func runsItself() bool {
	have, err := confine.Permitted()
	return err != nil || have&confine.NetAdmin == 0 || have&confine.Helper == confine.Helper
}

// WriteHelper prints what is known of the helper; nothing if there is none.
func WriteHelper(w io.Writer, title string, s *vmhelper.Status) {
	switch {
	case s == nil:
	case !s.Answers && s.Since.IsZero():
		output.Printf(w, "%s%s, not asked yet\n", title, s.Socket)
	case !s.Answers:
		output.Printf(w, "%sdoes not answer since %s: %s\n", title, s.Since.Format(time.RFC3339), s.Failure)
	case s.Helper != nil:
		output.Printf(w, "%s%s, version %s, process %d: %d requests done, %d failed\n", title, s.Socket, s.Helper.Version, s.Helper.PID, s.Helper.Done, s.Helper.Failed)
	}
}
