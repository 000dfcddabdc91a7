package simulate

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/mutants"
)

var (
	flagHunt    = flag.String("hunt", "", "look for these mutants, names or patterns with commas, in the order given")
	flagMost    = flag.Int("most", 25, "with hunt: so many histories for a mutant at most")
	flagProgram = flag.String("program", "", "with hunt: a program that has the mutants already")
	flagThemes  = flag.String("themes", "", "draw from these themes only, with commas")
	flagAgain   = flag.Bool("again", false, "with hunt: begin anew with those that were tried before")
)

// huntSeed is the first of the seeds with which planted bugs are looked for.
const huntSeed = 2_000_000_001

// huntDuration is how long those histories are, in simulated time.
const huntDuration = 30 * time.Second

// huntAimed is how many scenes those histories have that a mutant's row names the themes of: with
// more, one scene takes away what another aims at.
var huntAimed = history.Span{Least: 3, Most: 6}

// huntLimit is the limit of one in real time: a machine that has much else to do is no finding.
const huntLimit = 2 * time.Minute

// huntThemes are the themes of histories in which a bug of a file may show: every second history
// is of them, and the others are of all.
var huntThemes = []struct {
	prefix string
	themes []history.Theme
}{
	{"agent/", []history.Theme{history.Nodes, history.Away, history.Partitions, history.Backups, history.Crashes}},
	{"api/feedserver/", []history.Theme{history.Nodes, history.Away, history.Partitions, history.Backups, history.Crashes}},
	{"api/liveness/", []history.Theme{history.Nodes, history.Away, history.Partitions, history.Crashes}},
	{"log/feed/", []history.Theme{history.Nodes, history.Away, history.Partitions, history.Backups}},
	{"raftstore/internal/peer/", []history.Theme{history.Partitions, history.WeakNet, history.Crashes, history.Members, history.Blackouts}},
	{"raftstore/internal/raftlog/", []history.Theme{history.Blackouts, history.Crashes, history.Damage, history.Disks, history.Partitions}},
	{"raftstore/internal/clocks/", []history.Theme{history.Clocks, history.Members}},
	{"raftstore/internal/window/", []history.Theme{history.WeakNet, history.Partitions, history.Crashes, history.Clocks}},
	{"raftstore/", []history.Theme{history.Blackouts, history.Crashes, history.Damage, history.Disks, history.Backups, history.Partitions}},
	{"", nil},
}

// huntHistory is the n-th history, from 1, in which a mutant is looked for. If its row names themes,
// all are of these, in turn; else every second one is of those of its package.
func huntHistory(m mutants.Mutant, n int, asked []history.Theme) history.History {
	p := history.Usual().Lasting(huntDuration)
	p.Faults = history.Span{Least: 2, Most: 12}
	switch {
	case len(asked) > 0:
		p = p.Of(asked)
	case len(m.Themes) > 0:
		p = p.Of(m.Themes[(n-1)%len(m.Themes):][:1])
		p.Faults = huntAimed
	case n%2 == 0:
		for _, t := range huntThemes {
			if strings.HasPrefix(m.File, t.prefix) {
				p = p.Of(t.themes)
				break
			}
		}
	}
	return history.Generate(huntSeed+uint64(n-1), p)
}

// themesOf reads a list of themes with commas.
func themesOf(t *testing.T, list string) (all []history.Theme) {
	for name := range strings.SplitSeq(list, ",") {
		if name == "" {
			continue
		}
		if !slices.Contains(history.Themes(), history.Theme(name)) {
			t.Fatalf("there is no theme %q; the themes are %v", name, history.Themes())
		}
		all = append(all, history.Theme(name))
	}
	return all
}

// hunter looks for mutants in histories, and knows what fails without them too.
type hunter struct {
	program string
	file    string          // of what was found
	themes  []history.Theme // asked for; none: those of each mutant

	mu    sync.Mutex
	plain map[string]bool // the oracles that failed in a history without a mutant
	asked map[string]bool // the histories that were run without a mutant
}

// oracleOf is the name before the colon of a failure.
func oracleOf(failure string) string {
	name, _, _ := strings.Cut(Result{Failures: []string{failure}}.Sort(), ":")
	return name
}

// without runs a history twice without a mutant, if that was not done, and notes which oracles fail.
func (h *hunter) without(ctx context.Context, hist history.History) error {
	h.mu.Lock()
	asked := h.asked[hist.String()]
	h.mu.Unlock()
	if asked {
		return nil
	}
	p := &Pool{Program: h.program}
	defer p.Close()
	for range 2 {
		r, err := p.Run(ctx, hist)
		if err != nil {
			return err
		}
		h.mu.Lock()
		for _, f := range r.Failures {
			h.plain[oracleOf(f)] = true
		}
		h.mu.Unlock()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked[hist.String()] = true
	return nil
}

// first is the first failure of an oracle that never failed without a mutant; "": there is none.
func (h *hunter) first(failures []string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range failures {
		if !h.plain[oracleOf(f)] {
			line, _, _ := strings.Cut(f, "\n")
			return line[:min(len(line), 300)]
		}
	}
	return ""
}

// look runs histories with a mutant until an oracle fails that does not fail without it. It goes
// on after those that were tried before.
func (h *hunter) look(ctx context.Context, m mutants.Mutant, found mutants.Found) (mutants.Found, error) {
	p := &Pool{Program: h.program, Mutant: m.Name, Limit: huntLimit}
	defer p.Close()
	begun, before := time.Now(), found.Seconds
	for n := found.Tried + 1; n <= *flagMost; n++ {
		hist := huntHistory(m, n, h.themes)
		r, err := p.Run(ctx, hist)
		if err != nil {
			return found, err
		}
		found.Tried, found.Seconds = n, before+time.Since(begun).Seconds()
		if !r.Failed() {
			continue
		}
		if err := h.without(ctx, hist); err != nil {
			return found, err
		}
		if found.Oracle = h.first(r.Failures); found.Oracle != "" {
			found.After = n
			break
		}
	}
	return found, nil
}

// TestHunt looks for planted bugs with the simulator, and writes down which it finds.
func TestHunt(t *testing.T) {
	if *flagHunt == "" {
		t.Skip("make hunt runs this")
	}
	root := filepath.Join("..", "..")
	h := &hunter{program: *flagProgram, themes: themesOf(t, *flagThemes), file: filepath.Join(root, filepath.FromSlash(mutants.FoundFile)), plain: map[string]bool{}, asked: map[string]bool{}}
	if err := os.MkdirAll(filepath.Dir(h.file), 0o755); err != nil {
		t.Fatal(err)
	}
	alone := []mutants.Mutant{}
	if h.program == "" {
		var err error
		if h.program, alone, err = mutants.Together(t.Context(), mutants.All(""), root, t.TempDir(), "integration/simulate"); err != nil {
			t.Fatal(err)
		}
	}
	list := wanted(t, *flagHunt)
	before, err := mutants.ReadFound(h.file)
	if err != nil {
		t.Fatal(err)
	}
	if *flagAgain {
		for _, m := range list {
			delete(before, m.Name)
		}
	}
	ctx := t.Context()
	if *flagFor > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, *flagFor)
		defer cancel()
	}
	next := make(chan mutants.Mutant)
	var all sync.WaitGroup
	for range *flagWorkers {
		all.Go(func() {
			for m := range next {
				found, err := h.look(ctx, m, before[m.Name])
				if ctx.Err() != nil {
					return
				}
				if err == nil {
					h.mu.Lock()
					err = mutants.Record(h.file, m.Name, found)
					h.mu.Unlock()
				}
				fmt.Println(m.Name, found.After, found.Tried, found.Seconds, found.Oracle)
				if err != nil {
					t.Error(m.Name, err)
				}
			}
		})
	}
	for _, m := range list {
		if found := before[m.Name]; found.After > 0 || found.Tried >= *flagMost {
			continue
		}
		if slices.ContainsFunc(alone, func(a mutants.Mutant) bool { return a.Name == m.Name }) {
			t.Logf("%s changes more than functions, and is not in the program", m.Name)
			continue
		}
		select {
		case next <- m:
		case <-ctx.Done():
		}
	}
	close(next)
	all.Wait()
}

// wanted are the mutants of a list of patterns, each once.
func wanted(t *testing.T, patterns string) (list []mutants.Mutant) {
	for pattern := range strings.SplitSeq(patterns, ",") {
		for _, m := range mutants.All("") {
			ok, err := path.Match(pattern, m.Name)
			if err != nil {
				t.Fatal(err)
			}
			if ok && !slices.ContainsFunc(list, func(other mutants.Mutant) bool { return other.Name == m.Name }) {
				list = append(list, m)
			}
		}
	}
	return list
}
