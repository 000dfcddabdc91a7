// Command security measures what security costs, and what strangers, hostile and
// greedy clients take from others, on one machine; it ends with one line of key=value:
// see `make bench-security`. What a part measured is kept in a file, so that the
// line of a later part has it too.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"rutter/api/auth/matrix"
	"rutter/cmd/rutter/bench"
	"rutter/integration/bench/figures"
	"rutter/integration/hostile"
)

// suite is one run.
type suite struct {
	rutter   string // the program
	dir      string
	figures  *figures.Figures
	rounds   int
	hostile  time.Duration
	profiles string // the folder for CPU profiles of the servers; "": none
}

func main() { figures.Main("security", run) }

func run(ctx context.Context) (err error) {
	if len(os.Args) == 2 && os.Args[1] == burnArgument {
		return burn()
	}
	s := &suite{figures: figures.NewFigures("security", "append_tls_ratio", "fan_tls_ratio", "stranger_p99_ratio", "hostile_mb", "greedy_p99_ratio", "matrix_rows")}
	parts := []figures.Part{{Name: "append", Do: s.append}, {Name: "fan", Do: s.fan}, {Name: "strangers", Do: s.strangers}, {Name: "hostile", Do: s.crowd}, {Name: "greedy", Do: s.greedy}, {Name: "matrix_rows", Do: s.matrix}}
	only := flag.String("part", "all", figures.PartNames(parts))
	flag.StringVar(&s.rutter, "rutter", "bin/rutter", "`PROGRAM` to measure")
	flag.StringVar(&s.profiles, "cpuprofile", "", "`FOLDER` for CPU profiles of the servers")
	flag.IntVar(&s.rounds, "rounds", 5, "`NUMBER` of rounds with and without")
	flag.DurationVar(&s.hostile, "duration", time.Minute, "`TIME` of hostile clients")
	flag.Parse()
	if s.dir, err = os.MkdirTemp("", "rutter-bench-security-"); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	return s.figures.Run(ctx, *only, parts)
}

// start starts three servers, with TLS or without.
func (s *suite) start(ctx context.Context, name string, tls bool) (*bench.Cluster, error) {
	flags := []string{"--log-level=error"}
	if s.profiles != "" {
		flags = append(flags, "--cpuprofile="+s.profiles)
	}
	return bench.StartCluster(ctx, bench.Options{Program: s.rutter, Servers: 3, Dir: filepath.Join(s.dir, name), Flags: flags, TLS: tls})
}

// crowd measures hostile clients of the leader.
func (s *suite) crowd(ctx context.Context) error {
	o, err := hostile.Stand(ctx, s.rutter, s.dir, s.hostile)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "hostile: %+v\n", o)
	s.figures.Set("hostile_mb", float64(o.GrownMB))
	return nil
}

// matrix counts the rows of the matrix of who may do what, and prints them. Those of HTTP
// are the patterns that the routers dispatch: the tests TestEveryEndpointHasARow and
// TestEverySurfaceHasRows compare them.
func (s *suite) matrix(context.Context) error {
	total := 0
	for _, of := range []struct {
		name string
		rows []matrix.Row
	}{{"API", matrix.Requests()}, {"other surfaces", matrix.Surfaces()}, {"frames", matrix.Frames()}, {"commands", matrix.Commands()}} {
		total += len(of.rows)
		fmt.Fprintf(os.Stderr, "%s: %d rows\n", of.name, len(of.rows))
		for _, row := range of.rows {
			fmt.Fprintln(os.Stderr, "  "+row.What)
		}
	}
	s.figures.Set("matrix_rows", float64(total))
	return nil
}
