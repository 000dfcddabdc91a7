package debugsocket

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/api/support"
	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/term"
)

// Values of the setting beside a path.
const (
	off  = "off"
	auto = "auto"
)

// Name is the file's name in the runtime folder of a unit.
const Name = "debug.sock"

// The sockets of the units of the Debian package.
const (
	ServerSocket = "/run/rutter-server/" + Name
	AgentSocket  = "/run/rutter/" + Name
)

// runtimeFolders is the variable in which systemd names the unit's RuntimeDirectory=,
// several separated by colons (systemd.exec(5)).
const runtimeFolders = "RUNTIME_DIRECTORY"

// Flag is the setting of a daemon. prefix is that of the daemon's variables.
func Flag(prefix string) cli.Flag {
	return &cli.StringFlag{
		Name: "debug-socket", EnvVars: []string{prefix + "DEBUG_SOCKET"}, Value: auto,
		Usage: "`PATH` of the Unix socket at which root and this daemon's user get profiles, goroutines, settings and the last log lines (rutter support bundle --local), or off; auto: " + Name + " in the unit's runtime folder, off without systemd",
	}
}

// Options say where the socket is.
type Options struct {
	Socket localhttp.Socket // Path "": off
	// Asked: the operator named the path, so a daemon that cannot open it does not start.
	Asked bool
}

// OptionsOf reads the flag. Errors: term.UsageError.
func OptionsOf(c *cli.Context) (o Options, err error) {
	switch value := c.String("debug-socket"); value {
	case off, "":
		return o, nil
	case auto:
		first, _, _ := strings.Cut(os.Getenv(runtimeFolders), ":")
		if first != "" {
			o.Socket.Path = filepath.Join(first, Name)
		}
	default:
		o.Socket.Path, o.Asked = value, true
	}
	if o.Socket.Path == "" {
		return o, nil
	}
	if err := o.Socket.Check(); err != nil {
		return o, term.Usagef("--debug-socket %w", err)
	}
	return o, nil
}

// Folder is the folder of the socket, "" without one.
func (o Options) Folder() string {
	if o.Socket.Path == "" {
		return ""
	}
	return filepath.Dir(o.Socket.Path)
}

// SettingsOf returns the settings of a daemon as they may be shown: paths of secrets are
// settings, secrets are none. Package support removes what is secret in a value.
func SettingsOf(c *cli.Context, flags []cli.Flag) (all []support.Setting) {
	for _, f := range flags {
		name := f.Names()[0]
		value := c.Value(name)
		if list, ok := value.(cli.StringSlice); ok {
			value = strings.Join(list.Value(), ",")
		}
		all = append(all, support.Setting{Name: name, Value: fmt.Sprint(value), Set: c.IsSet(name)})
	}
	return all
}
