// Command wire measures what port security and the filter of VTEPs cost on the wire, how
// fast their rules reach the kernel, and what a VM loses that moves. It ends with one line
// of key=value: see `make bench-wire`. What a part measured is kept in a file, so that the
// line of a later part has it too; what no part has measured is na.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"syscall"
	"time"

	"rutter/cmd/rutter/netlab"
	"rutter/integration/bench/figures"
)

// keys are those of the last line, in its order. The ratios are of bare to ours, so that 1
// is as good as bare and less is worse: ratio is beside VXLAN, bridge and veth made with
// ip(8), which is what a VM's link needs, and vs_device beside a VXLAN device alone in the
// VM's namespace.
var keys = []string{"wire_tput_ratio", "wire_rtt_ratio", "rules_vs_raw", "rule_change_p99_ms", "move_lost_ms", "wire_tput_vs_device", "wire_rtt_vs_device"}

// suite is one run.
type suite struct {
	*figures.Figures
	rutter string // the program
	dir    string
	rounds int
	each   time.Duration // of one form in one round
	moves  int
}

func (s *suite) parts() []figures.Part {
	return []figures.Part{
		{Name: "tput", Do: s.throughput},
		{Name: "rtt", Do: s.roundTrips},
		{Name: "oneway", Do: s.oneWays},
		{Name: "rules", Do: s.rules},
		{Name: "move", Do: s.lossOfMoves},
	}
}

func main() {
	if !netlab.Inside() {
		figures.Main("wire", again)
		return
	}
	figures.Main("wire", run)
}

// again runs the program in namespaces of its own.
func again(context.Context) error {
	err := netlab.Enter(os.Args[1:]...).Run()
	if netlab.Forbidden(err) {
		return netlab.ErrForbidden
	}
	return err
}

func run(ctx context.Context) (err error) {
	if err := netlab.Settle(); err != nil && !errors.Is(err, syscall.EBUSY) {
		return err
	}
	s := &suite{Figures: figures.NewFigures("wire", keys...)}
	only := flag.String("part", "all", "one of "+figures.PartNames(s.parts()))
	flag.StringVar(&s.rutter, "rutter", "bin/rutter", "`PROGRAM` to measure")
	flag.IntVar(&s.rounds, "rounds", 81, "how often each form is measured; the median counts")
	flag.DurationVar(&s.each, "each", 250*time.Millisecond, "`TIME` of one form in one round")
	flag.IntVar(&s.moves, "moves", 6, "how often the VM of each fabric moves in each order of changes")
	flag.Parse()
	if s.dir, err = os.MkdirTemp("", "rutter-bench-wire-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	return s.Run(ctx, *only, s.parts())
}
