package simulate

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"rutter/integration/simulate/history"
)

const (
	// wideEvery: one history in so many is a wide one, with up to 50 agents.
	wideEvery = 20
	// usualDuration is what a history has if nothing else is asked for.
	usualDuration = time.Minute
)

// OfSeed is the history of a seed. A seed means the same history as long as the duration is the
// same, in simulated time; 0: a minute; and the themes, which it draws from; none: all.
func OfSeed(seed uint64, duration time.Duration, themes ...history.Theme) history.History {
	if duration == 0 {
		duration = usualDuration
	}
	p := history.Usual()
	if seed%wideEvery == 0 {
		p = history.Wide()
	}
	return history.Generate(seed, p.Lasting(duration).Of(themes))
}

// NextSeed reads the first seed that no night has used, from a file with one number.
func NextSeed(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("simulate: %w", err)
	}
	seed, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w; it holds one number, the first seed that was not used", path, err)
	}
	return seed, nil
}

// Advance writes what NextSeed reads.
func Advance(path string, seed uint64) error {
	return os.WriteFile(path, []byte(strconv.FormatUint(seed, 10)+"\n"), 0o644)
}

// FixedSeeds reads a file with one seed in each line; what follows a seed says why it is there.
func FixedSeeds(path string) (seeds []uint64, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("simulate: %w", err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		first, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if first == "" || first == "#" {
			continue
		}
		seed, err := strconv.ParseUint(first, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w; begin it with a seed or with #", path, i+1, err)
		}
		seeds = append(seeds, seed)
	}
	return seeds, nil
}
