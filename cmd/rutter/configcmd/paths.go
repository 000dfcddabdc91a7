package configcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/api/auth/tlsgate"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// checkPaths says what is wrong with the files and folders of this machine that the
// settings of a section name, one line for each.
func checkPaths(c *cli.Context, flags []cli.Flag) (wrong []string) {
	add := func(name string, err error, remedy string) {
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v: %s", name, err, remedy))
		}
	}
	for _, f := range flags {
		name := f.Names()[0]
		path, is := c.Value(name).(string)
		if !is || path == "" || !c.IsSet(name) {
			continue // a default may not be there: the daemon makes it, or goes on without
		}
		switch name {
		case "tls-dir":
			for _, err := range checkCertificates(path) {
				add(name, err, "rutter cert issue or rutter agent join fills that folder")
			}
		case "tls-cert", "tls-key", "tls-ca":
			add(name, readable(path, false), "rutter cert issue or rutter agent join makes it")
		case "passphrase-file":
			if path != "-" {
				add(name, readable(path, false), "write the passphrase into its first line, for the daemon's user only")
			}
		case "cpuprofile", "drill-clock", "vm-store":
			add(name, readable(path, true), "make that folder, or name another one")
		case "nic-tags":
			add(name, readable(path, false), "write it, or leave the setting out")
		case "data":
			add(name, canBeMade(path), "name a folder that the daemon can make or open")
		case "socket", "debug-socket":
			if strings.HasPrefix(path, "/") {
				add(name, canBeMade(filepath.Dir(path)), "name a path in a folder that the daemon can make or open")
			}
		}
	}
	return wrong
}

// checkCertificates returns what is wrong with a folder of certificates.
func checkCertificates(folder string) []error {
	if err := readable(folder, true); err != nil {
		return []error{err}
	}
	var all []error
	paths := tlsgate.ClientPaths(folder)
	for _, path := range []string{paths.Cert, paths.Key, paths.CA} {
		if err := readable(path, false); err != nil {
			all = append(all, err)
		}
	}
	return all
}

// readable returns why a file, or a folder, cannot be read.
func readable(path string, folder bool) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is not there", output.Visible(path))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s cannot be read by this user", output.Visible(path))
	case err != nil:
		return err
	case info.IsDir() != folder && folder:
		return fmt.Errorf("%s is no folder", output.Visible(path))
	case info.IsDir() && !folder:
		return fmt.Errorf("%s is a folder, and no file", output.Visible(path))
	case !folder && !info.Mode().IsRegular():
		return nil // a pipe of systemd's credentials, for example: reading it would take what is in it
	}
	in, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s cannot be read by this user", output.Visible(path))
	}
	return in.Close()
}

// canBeMade returns why a folder can neither be opened nor made: the nearest folder above it
// that is there decides.
func canBeMade(path string) error {
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		switch {
		case err == nil && info.IsDir():
			return nil
		case err == nil:
			return fmt.Errorf("%s is no folder", output.Visible(at))
		case errors.Is(err, fs.ErrPermission):
			return fmt.Errorf("%s cannot be read by this user", output.Visible(at))
		case !errors.Is(err, fs.ErrNotExist):
			return err
		case at == filepath.Dir(at):
			return nil
		}
	}
}

// pathsError makes one error of what is wrong.
func pathsError(wrong []string) error {
	if len(wrong) == 0 {
		return nil
	}
	return term.Usagef("%s (--no-files, if the file of settings is for another machine)", strings.Join(wrong, "; "))
}
