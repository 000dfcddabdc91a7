package mutants

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Overlay writes what the go command needs to build with m into the folder dir, and returns the
// value for -overlay. An empty Mutant (no Name) is the product as it is; its overlay is empty.
// root is the module's root.
func (m Mutant) Overlay(root, dir string) (string, error) {
	replace := map[string]string{}
	if m.Name != "" {
		text, err := m.Text(root)
		if err != nil {
			return "", err
		}
		broken := filepath.Join(dir, m.Name+".go")
		if err := os.WriteFile(broken, []byte(text), 0o644); err != nil {
			return "", err
		}
		original, err := filepath.Abs(filepath.Join(root, filepath.FromSlash(m.File)))
		if err != nil {
			return "", err
		}
		replace[original] = broken
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay-"+m.Name+".json")
	return name, os.WriteFile(name, b, 0o644)
}

// TestProgram builds the tests of a package with m in it, and returns the program's path, in dir.
// folder is the package's, from the module's root; an empty Mutant is the product as it is.
func (m Mutant) TestProgram(ctx context.Context, root, dir, folder string) (string, error) {
	program := filepath.Join(dir, strings.ReplaceAll(folder, "/", "_")+"-"+m.Name+".test")
	return program, m.build(ctx, root, dir, "test", "-c", "-vet=off", "-o", program, "./"+folder)
}

// Program builds rutter with m in it, for the tests that start it, and returns its path, in dir.
func (m Mutant) Program(ctx context.Context, root, dir string) (string, error) {
	program, err := filepath.Abs(filepath.Join(dir, "rutter-"+m.Name))
	if err != nil {
		return "", err
	}
	return program, m.build(ctx, root, dir, "build", "-o", program, "./cmd/rutter")
}

// build runs a command of go that builds, with m in what is built.
func (m Mutant) build(ctx context.Context, root, dir, command string, args ...string) error {
	overlay, err := m.Overlay(root, dir)
	if err != nil {
		return err
	}
	if err := goBuild(ctx, root, overlay, command, args...); err != nil {
		return fmt.Errorf("mutant %q: %w", m.Name, err)
	}
	return nil
}

// goBuild runs a command of go that builds, with an overlay.
func goBuild(ctx context.Context, root, overlay, command string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{command, "-ldflags=-s -w", "-overlay", overlay}, args...)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s %s: %w\n%s", command, args[len(args)-1], err, out)
	}
	return nil
}
