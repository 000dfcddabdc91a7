package arch

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// commandOf is a command at the module's root, with the flags of make build.
func commandOf(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = moduleRoot(t), append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	return cmd
}

func printedBy(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := commandOf(t, name, args...).Output()
	if err != nil {
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, exit.Stderr)
		}
		t.Fatal(err)
	}
	return string(out)
}

// A module that is linked newly, or no more, is noticed: docs/security.md has a row for
// each, with what it is for.
func TestLinkedModules(t *testing.T) {
	linked := map[string]bool{}
	for name := range strings.FieldsSeq(printedBy(t, "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "./cmd/rutter")) {
		linked[name] = true
	}
	text, err := os.ReadFile(filepath.Join(moduleRoot(t), "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Supply\n")
	if !found || len(linked) == 0 {
		t.Fatalf("docs/security.md has a section Supply: %t; %d modules are linked", found, len(linked))
	}
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string]bool{}
	quoted := regexp.MustCompile("`([^`]+)`")
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+) \\| (.+) \\|$").FindAllStringSubmatch(section, -1) {
		for _, name := range quoted.FindAllStringSubmatch(row[1], -1) {
			documented[name[1]] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(linked)) {
		if !documented[name] {
			t.Errorf("module %s is linked, and has no row in the section Supply of docs/security.md: say there what it is for (go mod why -m %s)", name, name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("module %s has a row in the section Supply of docs/security.md, and is not linked", name)
	}
}

// oldModules are modules that their authors no longer maintain, with all that the
// linker may keep of them: the reason why they do no harm.
var oldModules = map[string]*regexp.Regexp{
	"github.com/boltdb/bolt": regexp.MustCompile(`^github\.com/boltdb/bolt\.(\.inittask|defaultPageSize|init)$`),
	"github.com/coreos/etcd": regexp.MustCompile(`^github\.com/coreos/etcd/pkg/fileutil\.(\.inittask|init(\.\d+)?|plog|wrlck|ErrLocked|[pP]realloc\w*|(flock|ofd|linux)\w*)$`),
}

func TestOldModulesAreHardlyLinked(t *testing.T) {
	if os.Getenv("RUTTER_LONG") == "" {
		t.Skip("links the program with its symbols: make test-long")
	}
	program := filepath.Join(t.TempDir(), "rutter")
	printedBy(t, "go", "build", "-trimpath", "-buildvcs=false", "-o", program, "./cmd/rutter")
	seen := map[string]int{}
	for line := range strings.Lines(printedBy(t, "go", "tool", "nm", program)) {
		fields := strings.Fields(line)
		symbol := fields[len(fields)-1]
		for name, may := range oldModules {
			if strings.HasPrefix(symbol, name) {
				seen[name]++
				if !may.MatchString(symbol) {
					t.Errorf("%s is linked, of a module that is no longer maintained: say in the section Supply of docs/security.md why it does no harm", symbol)
				}
			}
		}
	}
	if len(seen) != len(oldModules) {
		t.Errorf("symbols were found of %v: an old module that is gone leaves this test and docs/security.md", seen)
	}
}

// The same source gives the same bytes.
func TestReproducible(t *testing.T) {
	if os.Getenv("RUTTER_LONG") == "" {
		t.Skip("builds the program twice, once from an empty cache: make test-long")
	}
	if out := printedBy(t, "make", "reproducible", "VERSION=0.0~test"); !strings.Contains(out, "the same bytes twice: version 0.0~test, go") {
		t.Errorf("make reproducible printed %q", out)
	}
}

// Where the data of vulnerabilities cannot be had, make vuln does not pass for a check.
func TestVulnWithoutData(t *testing.T) {
	if os.Getenv("RUTTER_LONG") == "" {
		t.Skip("builds govulncheck: make test-long")
	}
	cmd := commandOf(t, "scripts/vuln.sh")
	cmd.Env = append(cmd.Env, "GOVULNDB=file://"+filepath.Join(t.TempDir(), "none"))
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 4 || !strings.Contains(string(out), "NOTHING was checked") {
		t.Errorf("without data: %v\n%s", err, out)
	}
}
