package bulkwrite

import (
	"fmt"
	"io"
	"time"

	"rutter/cmd/rutter/output"
)

// Times between two displays of progress.
const (
	onTerminal = 200 * time.Millisecond
	inLines    = 5 * time.Second
	// rateOver is over how long the rate is taken.
	rateOver = 10 * time.Second
)

// Progress shows how far long work is, its rate, and how long it will take: on a
// terminal in one line that is written over, elsewhere in a line every few seconds. It
// belongs to one goroutine.
type Progress struct {
	out      io.Writer
	terminal bool
	what     string // plural, as in changes
	now      func() time.Time

	begun, shown time.Time
	marks        []mark // of the last seconds
	open         bool   // the terminal's line is not ended
}

type mark struct {
	at   time.Time
	done uint64
}

// NewProgress returns a Progress of what, a plural word of the program, that writes to
// out.
func NewProgress(out io.Writer, terminal bool, what string, now func() time.Time) *Progress {
	begun := now()
	return &Progress{out: out, terminal: terminal, what: what, now: now, begun: begun, shown: begun, marks: []mark{{at: begun}}}
}

// Show shows that done of all are done, if it is time to; all is 0 if it is unknown.
func (p *Progress) Show(done, all uint64) {
	now, every := p.now(), inLines
	if p.terminal {
		every = onTerminal
	}
	if now.Sub(p.shown) < every {
		return
	}
	p.shown = now
	p.marks = append(p.marks, mark{now, done})
	for len(p.marks) > 2 && now.Sub(p.marks[1].at) >= rateOver {
		p.marks = p.marks[1:]
	}
	p.print(p.line(done, all))
}

// line is a line of progress, without its end.
func (p *Progress) line(done, all uint64) string {
	first, last := p.marks[0], p.marks[len(p.marks)-1]
	rate := 0.0
	if took := last.at.Sub(first.at).Seconds(); took > 0 && last.done >= first.done {
		rate = float64(last.done-first.done) / took
	}
	switch {
	case all == 0:
		return fmt.Sprintf("%d %s, %.0f/s", done, p.what, rate)
	case rate < 0.01 || done > all:
		return fmt.Sprintf("%d of %d %s, %d %%, %.0f/s", done, all, p.what, percent(done, all), rate)
	}
	left := time.Duration(float64(all-done) / rate * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("%d of %d %s, %d %%, %.0f/s, %v left", done, all, p.what, percent(done, all), rate, left)
}

func percent(done, all uint64) uint64 { return min(uint64(float64(done)/float64(all)*100), 100) }

func (p *Progress) print(line string) {
	if p.terminal {
		p.open = true
		output.Printf(p.out, "\r%s\x1b[K", line)
		return
	}
	output.Printf(p.out, "%s\n", line)
}

// End ends the terminal's line.
func (p *Progress) End() {
	if p.open {
		p.open = false
		output.Print(p.out, "\n")
	}
}
