package lying

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"rutter/log"
)

// party makes a step.
type party int

const (
	operator party = iota
	lies           // the CN that lies
	honest         // a CN that takes what it was given
)

// step is one change of one party.
type step struct {
	party party
	cn    log.UUID // of a CN
	ops   []log.Op
}

func (s step) author() log.Author {
	if s.party == operator {
		return log.Author{}
	}
	return log.Author{Role: log.RoleCN, CN: s.cn}
}

func (s step) String() string {
	who := []string{"operator", "CN that lies", "honest CN"}[s.party]
	return who + ": " + short(showAll(s.ops))
}

func drawStep(draw chooser) step {
	switch at := draw(10); {
	case at < 6:
		return step{lies, liar, lie(draw)}
	case at < 9:
		return step{operator, log.UUID{}, []log.Op{operate(draw)}}
	}
	cn := pick(draw, others...)
	return step{honest, cn, []log.Op{drawVMUpdate(draw, cn)}}
}

// run makes the steps, and judges those of the CN that lies.
func run(t testing.TB, steps []step) (b *breach, after int) {
	return runAt(t, log.FeatureVersion, steps)
}

func runAt(t testing.TB, feature uint32, steps []step) (b *breach, after int) {
	w := newWorld(t, feature)
	j := newJudge(w)
	for i, s := range steps {
		if s.party != lies {
			events, _ := w.decide(s.author(), s.ops)
			for _, e := range events {
				if j.before = nil; s.party == operator && e.Action != log.Delete {
					j.note(w, e.Object)
				}
			}
			j.settle(w)
			continue
		}
		w.made++
		events, refusal := w.weigh(s.author(), s.ops)
		if refusal != nil {
			b = j.told(w, s.author(), s.ops, refusal)
		} else {
			b = j.judge(w, events)
		}
		if b != nil {
			return b, i + 1
		}
		j.settle(w)
	}
	return nil, len(steps)
}

// shorten drops steps and operations as long as the breach of that sort remains.
func shorten(t testing.TB, steps []step, sort string) []step {
	still := func(tried []step) bool {
		b, _ := run(t, tried)
		return b != nil && b.sort == sort
	}
	for again := true; again; {
		again = false
		for i := range steps {
			if less := slices.Delete(slices.Clone(steps), i, i+1); still(less) {
				steps, again = less, true
				break
			}
			for k := range steps[i].ops {
				less := slices.Clone(steps)
				if less[i].ops = slices.Delete(slices.Clone(less[i].ops), k, k+1); len(less[i].ops) > 0 && still(less) {
					steps, again = less, true
					break
				}
			}
			if again {
				break
			}
		}
	}
	return steps
}

const (
	historySteps = 20
	histories    = 10_000
)

func history(seed uint64) []step {
	rng := rand.New(rand.NewPCG(seed, 17))
	steps := make([]step, historySteps)
	for i := range steps {
		steps[i] = drawStep(rng.IntN)
	}
	return steps
}

// TestLyingCN: whatever one CN of five sends, beside what an operator does, no object,
// address, forwarding entry or frame of another changes or leaks, unless an operator gave
// it; and a refusal says the same of what another has and of what there is not.
func TestLyingCN(t *testing.T) {
	begin := uint64(1)
	if os.Getenv("RUTTER_LONG") != "" {
		begin = rand.Uint64()
	}
	const workers = 2
	var done sync.WaitGroup
	var mu sync.Mutex
	found := make(map[string]string) // by sort, the shortest seen
	for worker := range uint64(workers) {
		done.Go(func() {
			for n := worker; n < histories; n += workers {
				steps := history(begin + n)
				b, upTo := run(t, steps)
				if b == nil {
					continue
				}
				mu.Lock()
				_, known := found[b.sort]
				if !known {
					found[b.sort] = "" // said below
				}
				mu.Unlock()
				if known {
					continue
				}
				steps = shorten(t, steps[:upTo], b.sort)
				b, _ = run(t, steps)
				lines := []string{fmt.Sprintf("%s (seed %d): %s", b.sort, begin+n, short(b.what))}
				for _, s := range steps {
					lines = append(lines, "    "+s.String())
				}
				mu.Lock()
				found[b.sort] = strings.Join(lines, "\n")
				mu.Unlock()
			}
		})
	}
	done.Wait()
	for _, text := range found {
		t.Error(text)
	}
}
