//go:build release

// Command release makes what is published of one version: for each architecture a
// tarball, a Debian package and a software bill of materials, an image for container
// runtimes, checksums and release notes. The same commit and the same version of Go
// give the same bytes. See docs/release.md; `make release` runs it.
//
// It is built with the module file scripts/release.mod, so that the program itself does
// not depend on what packs it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// parts are the kinds of artefacts, in the order in which they are made.
var parts = []string{"tar", "deb", "sbom", "image", "notes", "sums"}

// options say what is made.
type options struct {
	version    string    // a legal Debian version: see version.sh
	maintainer string    // NAME <ADDRESS>, as in a Debian package
	built      time.Time // the time of every file: that of the commit
	revision   string    // the commit, or empty
	out        string    // the folder of the artefacts
	only       []string  // of parts
	archs      []string  // as Go names them
	programs   map[string]string
}

func main() {
	signal.Ignore(syscall.SIGPIPE)
	o, err := parse(os.Args[1:])
	if err == nil {
		err = release(o)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

// legalVersion are versions of Debian packages without an epoch and a revision.
var legalVersion = regexp.MustCompile(`^[0-9][A-Za-z0-9.+~]*$`)

// parse reads the command line and SOURCE_DATE_EPOCH.
func parse(args []string) (options, error) {
	o := options{programs: map[string]string{}}
	flags := flag.NewFlagSet("release", flag.ExitOnError)
	flags.StringVar(&o.version, "version", "", "version of the artefacts, as scripts/release/version.sh prints it")
	flags.StringVar(&o.maintainer, "maintainer", "", "NAME <ADDRESS> of who answers for the packages")
	flags.StringVar(&o.out, "out", "dist", "folder of the artefacts")
	flags.StringVar(&o.revision, "revision", "", "commit that is released")
	archs := flags.String("arch", "amd64,arm64", "architectures")
	only := flags.String("only", strings.Join(parts, ","), "kinds of artefacts")
	flags.Func("program", "ARCH=FILE: a program that was built before, in place of a build", func(s string) error {
		arch, file, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("want ARCH=FILE")
		}
		o.programs[arch] = file
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.version == "" || o.maintainer == "" {
		return o, errors.New("-version and -maintainer are missing: run make release")
	}
	if !legalVersion.MatchString(o.version) {
		return o, fmt.Errorf("-version %q is no version of a Debian package: it begins with a digit, and has letters, digits and . + ~ only", o.version)
	}
	o.archs, o.only = strings.Split(*archs, ","), strings.Split(*only, ",")
	for _, part := range o.only {
		if !slices.Contains(parts, part) {
			return o, fmt.Errorf("-only %s: want some of %s", part, strings.Join(parts, ","))
		}
	}
	var seconds int64
	if _, err := fmt.Sscanf(os.Getenv("SOURCE_DATE_EPOCH"), "%d", &seconds); err != nil || seconds <= 0 {
		return o, errors.New("SOURCE_DATE_EPOCH must be the time of the commit in seconds since 1970: run make release")
	}
	o.built = time.Unix(seconds, 0).UTC()
	return o, nil
}
