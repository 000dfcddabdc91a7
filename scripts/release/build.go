//go:build release

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// made is what is the same on every architecture, because a program of this machine
// printed it or because it comes from the source.
type made struct {
	bash, zsh, fish []byte
	pages           map[string][]byte // man pages by file name, such as rutter-nic.1
	copyright       []byte
	changelog       []byte // in Debian's form
}

// release makes the artefacts that o names.
func release(o options) error {
	work, err := os.MkdirTemp("", "rutter-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	native, err := programFor(o, runtime.GOARCH, work)
	if err != nil {
		return err
	}
	if err := sameVersion(o, native); err != nil {
		return err
	}
	same, err := sayAll(o, native, work)
	if err != nil {
		return err
	}
	var images []platform
	for _, arch := range o.archs {
		file, err := programFor(o, arch, work)
		if err != nil {
			return err
		}
		program, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		linked, err := linkedInto(file, arch)
		if err != nil {
			return err
		}
		same.copyright = copyright(o, linked)
		items, err := tree(o, program, same)
		if err != nil {
			return err
		}
		if err := forArch(o, arch, linked, items, work); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		images = append(images, platform{arch: arch, program: program, copyright: same.copyright})
	}
	if slices.Contains(o.only, "image") {
		if err := writeImage(o, images); err != nil {
			return err
		}
	}
	if slices.Contains(o.only, "notes") {
		if err := writeNotes(o); err != nil {
			return err
		}
	}
	if slices.Contains(o.only, "sums") {
		return writeSums(o)
	}
	return nil
}

// forArch makes what each architecture has.
func forArch(o options, arch string, l linked, items []item, work string) error {
	if slices.Contains(o.only, "tar") {
		if err := writeTarball(o, arch, items); err != nil {
			return err
		}
	}
	if slices.Contains(o.only, "deb") {
		if err := writeDeb(o, arch, items, work); err != nil {
			return err
		}
	}
	if slices.Contains(o.only, "sbom") {
		return writeSBOM(o, arch, items, l)
	}
	return nil
}

// programFor returns the file of the program of an architecture, which it builds if it
// was not given. The flags are those of make build.
func programFor(o options, arch, work string) (string, error) {
	if file := o.programs[arch]; file != "" {
		return file, nil
	}
	file := filepath.Join(work, "rutter-"+arch)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+o.version, "-o", file, "./cmd/rutter")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0")
	if _, err := outputOf(cmd); err != nil {
		return "", err
	}
	o.programs[arch] = file
	return file, nil
}

// sameVersion refuses a program that was built before from another commit.
func sameVersion(o options, program string) error {
	out, err := said(o, program, "--version")
	if err != nil {
		return err
	}
	if words := strings.Fields(string(out)); len(words) < 2 || words[1] != o.version {
		return fmt.Errorf("%s --version says %q, and the artefacts are to be of version %s: build it anew", program, bytes.TrimSpace(out), o.version)
	}
	return nil
}

// sayAll asks a program of this machine for completions and man pages.
func sayAll(o options, program, work string) (made, error) {
	var m made
	for shell, to := range map[string]*[]byte{"bash": &m.bash, "zsh": &m.zsh, "fish": &m.fish} {
		out, err := said(o, program, "completion", shell)
		if err != nil {
			return m, err
		}
		*to = out
	}
	folder := filepath.Join(work, "man")
	if _, err := said(o, program, "manpages", "--date", o.built.Format(time.DateOnly), folder); err != nil {
		return m, err
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.1"))
	if err != nil {
		return m, err
	}
	m.pages = map[string][]byte{}
	for _, file := range files {
		if m.pages[filepath.Base(file)], err = os.ReadFile(file); err != nil {
			return m, err
		}
	}
	m.changelog, err = debianChangelog(o)
	return m, err
}

// said is what the program prints. Its environment has no settings of this machine: they
// would be shown as defaults.
func said(o options, program string, args ...string) ([]byte, error) {
	absolute, err := filepath.Abs(program)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(absolute, args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "TZ=UTC", "LC_ALL=C.UTF-8", fmt.Sprintf("SOURCE_DATE_EPOCH=%d", o.built.Unix())}
	return outputOf(cmd)
}

// outputOf runs a command and returns what it printed; the error says what it printed
// about that.
func outputOf(cmd *exec.Cmd) ([]byte, error) {
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, bytes.TrimSpace(errors.Bytes()))
	}
	return out, nil
}
