package history

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func profiles() map[string]Profile {
	return map[string]Profile{"usual": Usual(), "wide": Wide(), "short": Usual().Lasting(20 * sec)}
}

// Each history that is made can be run, ends in time, and is the same for the same seed.
func TestGenerateIsValid(t *testing.T) {
	for name, p := range profiles() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				seed := rapid.Uint64().Draw(t, "seed")
				h := Generate(seed, p)
				if err := h.Validate(); err != nil {
					t.Fatalf("%v\n%v", err, h)
				}
				for _, f := range h.Faults {
					if f.At+f.For > p.Duration-tail {
						t.Fatalf("%v ends too late in\n%v", f, h)
					}
				}
				if again := Generate(seed, p); !reflect.DeepEqual(h, again) {
					t.Fatalf("the same seed gave\n%v\nand\n%v", h, again)
				}
			})
		})
	}
}

// A history has few kinds of trouble, and all histories together have all.
func TestGenerateMixes(t *testing.T) {
	const n = 600
	histories := map[Kind]int{}
	faults, most, least := 0, 0, 1<<30
	for seed := range uint64(n) {
		h := Generate(seed, Usual())
		kinds := map[Kind]bool{}
		for _, f := range h.Faults {
			kinds[f.Kind] = true
		}
		for k := range kinds {
			histories[k]++
		}
		faults += len(h.Faults)
		most, least = max(most, len(kinds)), min(least, len(kinds))
	}
	for _, k := range Kinds() {
		if histories[k] < n/200 {
			t.Errorf("%d of %d histories have a fault %s, which is too few to find anything", histories[k], n, k)
		}
		if histories[k] > n*2/3 {
			t.Errorf("%d of %d histories have a fault %s: nothing is found that it hides", histories[k], n, k)
		}
	}
	if most > 20 {
		t.Errorf("a history has %d kinds of faults, which is everything at once", most)
	}
	if mean := faults / n; mean < 4 || mean > 30 {
		t.Errorf("a history has %d faults on average", mean)
	}
	t.Logf("%.1f faults a history, %d to %d kinds", float64(faults)/n, least, most)
	for _, k := range Kinds() {
		t.Logf("%4d of %d histories have %s", histories[k], n, k)
	}
}

// Every theme is drawn, and a profile can name those that it wants.
func TestThemes(t *testing.T) {
	for _, theme := range Themes() {
		p := Usual()
		p.TLS, p.Faults = 100, Span{10, 20}
		p = p.Of([]Theme{theme})
		placed := 0
		for seed := range uint64(50) {
			placed += len(Generate(seed, p).Faults)
		}
		if placed < 50 {
			t.Errorf("50 histories of %s have %d faults", theme, placed)
		}
	}
	p := Usual()
	p.Themes = []Theme{Clocks}
	for seed := range uint64(50) {
		for _, f := range Generate(seed, p).Faults {
			if !slices.Contains([]Kind{Skew, Drift, Transfer}, f.Kind) {
				t.Fatalf("a history of clocks only has %v", f)
			}
		}
	}
}

// What the cluster does not survive is never made: the same server loses its copy, or another
// minority.
func TestGenerateLosesNoMajority(t *testing.T) {
	p := Usual()
	p.Themes, p.Faults, p.Servers = []Theme{Damage, Members, Clocks}, Span{40, 60}, Span{3, 5}
	lossy := 0
	for seed := range uint64(300) {
		h := Generate(seed, p)
		lost := map[string]bool{}
		for _, f := range h.Faults {
			if kind, _, _ := machine(f.On); kind == onServer && f.Kind.loses() {
				lost[f.On] = true
			}
		}
		if len(lost) > (h.Servers-1)/2 {
			t.Fatalf("%d of %d servers lose their copies in\n%v", len(lost), h.Servers, h)
		}
		if len(lost) > 0 {
			lossy++
		}
	}
	if lossy < 100 {
		t.Errorf("only %d of 300 histories lose a copy", lossy)
	}
}

// The draws of durations reach both ends.
func TestLasting(t *testing.T) {
	g := &generator{rng: newRand(1)}
	g.h.Duration = time.Minute
	least, most := time.Hour, time.Duration(0)
	for range 3000 {
		d := g.lasting(100*ms, 8*sec)
		least, most = min(least, d), max(most, d)
	}
	if least > 200*ms || least < 100*ms || most < 7*sec || most > 8*sec {
		t.Errorf("from %v to %v", least, most)
	}
}
