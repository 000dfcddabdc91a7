package mutants

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// testLimit is how long one test may take, its build excluded. A mutant may make a test wait
// without end: a test that is ended for this has noticed the mutant.
const testLimit = time.Minute

// Outcome is what a test said of a mutant.
type Outcome string

const (
	Noticed  Outcome = "noticed"  // the test failed, as it must
	Survived Outcome = "SURVIVED" // the test passed
	Skipped  Outcome = "skipped"  // the test cannot run here: nothing is known
	Broken   Outcome = "BROKEN"   // the test fails without a mutant too
)

// Result is one test's run with one mutant.
type Result struct {
	Mutant  string        `json:"mutant"`
	Test    string        `json:"test"`
	Sources string        `json:"sources"` // a hash of what the result depends on nearby
	Outcome Outcome       `json:"outcome"`
	Took    time.Duration `json:"took"` // nanoseconds, the build excluded
}

// Runner tries mutants with the tests that they name.
type Runner struct {
	Root string    // the module's root
	Dir  string    // a folder for what is built; the caller removes it
	Kept string    // the file of results, by which a run goes on where one was ended; "" keeps none
	Out  io.Writer // a line for each result

	results  []Result
	baseline map[string]Outcome  // by test: what it says without a mutant
	plain    map[string]*program // by folder: its tests without a mutant
}

// program is a test program, and what its tests need beside it.
type program struct {
	path   string
	folder string // of the package, from the module's root
	rutter string // the program that tests below integration start; "" for other packages
}

// build builds the tests of a package with m in them.
func (r *Runner) build(ctx context.Context, m Mutant, folder string) (p *program, err error) {
	p = &program{folder: folder}
	if p.path, err = m.TestProgram(ctx, r.Root, r.Dir, folder); err != nil {
		return nil, err
	}
	if strings.HasPrefix(folder, "integration") {
		p.rutter, err = m.Program(ctx, r.Root, r.Dir)
	}
	return p, err
}

// remove removes what was built.
func (p *program) remove() {
	os.Remove(p.path)
	if p.rutter != "" {
		os.Remove(p.rutter)
	}
}

// Run tries each mutant with each of its own tests. It returns all results, kept ones among
// them, and an error which names each mutant that was not noticed by a test that must notice it,
// that does not build, or whose test is broken.
func (r *Runner) Run(ctx context.Context, list []Mutant) ([]Result, error) {
	r.baseline, r.plain = map[string]Outcome{}, map[string]*program{}
	if err := r.load(); err != nil {
		return nil, err
	}
	var done []Result
	var wrong []error
	for _, m := range list {
		results, err := r.try(ctx, m)
		done = append(done, results...)
		if ctx.Err() != nil {
			return done, ctx.Err()
		}
		if err != nil {
			fmt.Fprintf(r.Out, "%v\n", err)
			wrong = append(wrong, err)
		}
	}
	return done, errors.Join(wrong...)
}

// try runs the tests of one mutant.
func (r *Runner) try(ctx context.Context, m Mutant) (done []Result, err error) {
	built := map[string]*program{}
	defer func() {
		for _, p := range built {
			p.remove()
		}
	}()
	for _, own := range m.Own {
		folder, test := splitTest(own)
		sources, err := r.sources(m, folder)
		if err != nil {
			return done, err
		}
		result, kept := r.kept(m.Name, own, sources)
		if !kept {
			if built[folder] == nil {
				p, err := r.build(ctx, m, folder)
				if err != nil {
					return done, err
				}
				built[folder] = p
			}
			began := time.Now()
			outcome, err := r.outcome(ctx, built[folder], test)
			if err != nil {
				return done, fmt.Errorf("mutant %q: %w", m.Name, err)
			}
			result = Result{Mutant: m.Name, Test: own, Sources: sources, Outcome: outcome, Took: time.Since(began)}
			if outcome == Noticed {
				if result.Outcome, err = r.sound(ctx, own); err != nil {
					return done, err
				}
			}
			if err := r.keep(result); err != nil {
				return done, err
			}
		}
		fmt.Fprintf(r.Out, "%-9s %-44s %-70s %5.1fs\n", result.Outcome, m.Name, own, result.Took.Seconds())
		done = append(done, result)
	}
	return done, judge(m, done)
}

// judge reports what is wrong with the results of one mutant.
func judge(m Mutant, done []Result) error {
	for _, result := range done {
		switch result.Outcome {
		case Survived:
			return fmt.Errorf("mutant %q survived: %s passes although %s", m.Name, result.Test, m.Breaks)
		case Broken:
			return fmt.Errorf("mutant %q: %s fails without the mutant too", m.Name, result.Test)
		}
	}
	return nil
}

// sound reports Noticed if a test passes without a mutant, and Broken if it does not.
func (r *Runner) sound(ctx context.Context, own string) (Outcome, error) {
	if outcome, ok := r.baseline[own]; ok {
		return outcome, nil
	}
	folder, test := splitTest(own)
	if r.plain[folder] == nil {
		p, err := r.build(ctx, Mutant{}, folder)
		if err != nil {
			return "", err
		}
		r.plain[folder] = p
	}
	outcome, err := r.outcome(ctx, r.plain[folder], test)
	if err != nil {
		return "", err
	}
	r.baseline[own] = Broken
	if outcome == Survived {
		r.baseline[own] = Noticed
	}
	return r.baseline[own], nil
}

// outcome runs one test of a test program in the folder of its package.
func (r *Runner) outcome(ctx context.Context, p *program, test string) (Outcome, error) {
	var exact []string
	for part := range strings.SplitSeq(test, "/") {
		exact = append(exact, "^"+part+"$")
	}
	args := []string{"-test.run", strings.Join(exact, "/"), "-test.v", "-test.timeout", testLimit.String(), "-test.failfast"}
	if usage, _ := exec.CommandContext(ctx, p.path, "-h").CombinedOutput(); bytes.Contains(usage, []byte("-rapid.nofailfile")) {
		// The case that failed is not wanted: rapid would make it small, and keep it in the tree.
		args = append(args, "-rapid.nofailfile", "-rapid.shrinktime=0s")
	}
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Dir = filepath.Join(r.Root, filepath.FromSlash(p.folder))
	if p.rutter != "" {
		cmd.Env = append(os.Environ(), "RUTTER_PROGRAM="+p.rutter)
	}
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	function, _, _ := strings.Cut(test, "/")
	said := func(what string) bool { return bytes.Contains(out.Bytes(), []byte(what+function)) }
	switch {
	case !said("=== RUN   "):
		return "", fmt.Errorf("%s has no test %s that runs: %w\n%s", p.folder, test, err, out.String())
	case err != nil:
		return Noticed, nil
	case said("--- SKIP: "):
		return Skipped, nil
	default:
		return Survived, nil
	}
}

// sources is a hash of m and of the files of its package and of the tests' package.
func (r *Runner) sources(m Mutant, folder string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%s\n", m.File, m.Old, m.New)
	for _, dir := range []string{filepath.Dir(filepath.FromSlash(m.File)), filepath.FromSlash(folder)} {
		files, err := filepath.Glob(filepath.Join(r.Root, dir, "*.go"))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(h, "%s %d\n%s", filepath.Base(file), len(b), b)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}

// load reads the kept results.
func (r *Runner) load() error {
	if r.Kept == "" {
		return nil
	}
	b, err := os.ReadFile(r.Kept)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &r.results); err != nil {
		return fmt.Errorf("%s has no results of mutants (%w): remove it", r.Kept, err)
	}
	return nil
}

// kept is the result that a run of before left. What was not noticed is tried again.
func (r *Runner) kept(mutant, own, sources string) (Result, bool) {
	i := slices.IndexFunc(r.results, func(k Result) bool {
		return k.Mutant == mutant && k.Test == own && k.Sources == sources && k.Outcome == Noticed
	})
	if i < 0 {
		return Result{}, false
	}
	return r.results[i], true
}

// keep writes a result beside those of before, in place of an older one of the same test.
func (r *Runner) keep(result Result) error {
	r.results = slices.DeleteFunc(r.results, func(k Result) bool {
		return k.Mutant == result.Mutant && k.Test == result.Test
	})
	r.results = append(r.results, result)
	if r.Kept == "" {
		return nil
	}
	b, err := json.MarshalIndent(r.results, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.Kept), 0o755); err != nil {
		return err
	}
	return os.WriteFile(r.Kept, append(b, '\n'), 0o644)
}
