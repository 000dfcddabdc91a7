package tritoncmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/triton/conformance"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// exitDifferent is the exit code if a server answers otherwise than is documented, or than
// the other one.
const exitDifferent = 3

// maxTotal bounds a check, however slowly a server answers: a million NICs take minutes.
const maxTotal = time.Hour

// errTotal: the time of --total has passed.
var errTotal = errors.New("the check is not done, and its time has passed: give it more with --total")

// Command is `rutter triton`.
func Command() *cli.Command {
	return &cli.Command{
		Name: "triton", Usage: "check NAPI, CNAPI and VMAPI, the old ones and Rutter's", Category: "Objects",
		Description: term.Examples("rutter triton check http://napi.my.domain"),
		Subcommands: []*cli.Command{{
			Name: "check", Usage: "hold a server against what is documented of NAPI, CNAPI or VMAPI", ArgsUsage: "URL",
			Action: check, Description: checkText,
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "service", Usage: "the URL is that of `SERVICE`: napi, cnapi or vmapi (default: found by the lists that it has)"},
				&cli.StringFlag{Name: "against", Usage: "compare it with the server of the same cloud at `URL`, object by object"},
				&cli.DurationFlag{Name: "timeout", Value: conformance.DefaultTimeout, Usage: "give up an answer after this `TIME`"},
				&cli.DurationFlag{Name: "total", Value: maxTotal, Usage: "end after this `TIME` in all"},
				output.Flag("table", "json"),
			},
		}},
	}
}

// checkText is the help of `rutter triton check`.
var checkText = strings.TrimSpace(`
It sends the calls of the conformance table that need no fixtures, with GET and
HEAD alone: it never writes. docs/conformance.md has the table, with the source of
each row. A row for which the server has nothing (no network, no NIC) is skipped.

With --against it sends the same calls to both servers, for the objects that the
first one has, and then reads their lists to the end and compares them object by
object, field by field. Each row of a list that only one of them has is named, and
each field that differs. Run it while neither is written to.

Exit codes: 0 as documented, or the same; 3 there are differences; 1 a server does
not answer, or a list cannot be read to its end.

`) + "\n\n" + term.Examples(
	"rutter triton check http://napi.my.domain",
	"rutter triton check http://cnapi.my.domain --service cnapi -o json",
	"rutter triton check http://napi.my.domain --against http://10.99.99.8:80   # the old one and Rutter's",
)

func check(c *cli.Context) error {
	if c.NArg() != 1 {
		return term.Usagef("want one URL, as in http://napi.my.domain")
	}
	for _, name := range []string{"timeout", "total"} {
		if c.Duration(name) <= 0 {
			return term.Usagef("--%s %s: want more than 0", name, c.Duration(name))
		}
	}
	var stop context.CancelFunc
	c.Context, stop = context.WithTimeoutCause(c.Context, c.Duration("total"), errTotal)
	defer stop()
	address, against := c.Args().First(), c.String("against")
	service, err := serviceOf(c, address)
	if err != nil {
		return err
	}
	groups, err := conformance.All()
	if err != nil {
		return err
	}
	runner, err := runnerOf(c, service, address)
	if err != nil {
		return err
	}
	defer runner.Close()
	if against == "" {
		return checkOne(c, runner, groups, service, address)
	}
	other, err := runnerOf(c, service, against)
	if err != nil {
		return err
	}
	defer other.Close()
	return compareTwo(c, runner, other, groups, service, address, against)
}

// runnerOf is a runner that only reads this one server.
func runnerOf(c *cli.Context, service conformance.Service, address string) (*conformance.Runner, error) {
	r, err := conformance.NewRunner(map[conformance.Service]string{service: address}, true, c.Duration("timeout"))
	if err != nil {
		return nil, term.Usagef("%w", err)
	}
	return r, nil
}

// serviceOf is the service that --service names, or that the server is.
func serviceOf(c *cli.Context, address string) (conformance.Service, error) {
	if name := conformance.Service(c.String("service")); name != "" {
		if !slices.Contains(conformance.Services, name) {
			return "", term.Usagef("--service %q: want napi, cnapi or vmapi", name)
		}
		return name, nil
	}
	bases := map[conformance.Service]string{}
	for _, s := range conformance.Services {
		bases[s] = address
	}
	r, err := conformance.NewRunner(bases, true, c.Duration("timeout"))
	if err != nil {
		return "", term.Usagef("%w", err)
	}
	defer r.Close()
	service, err := r.Detect(c.Context)
	if errors.Is(err, conformance.ErrUnknown) {
		err = fmt.Errorf("%w; say what it is with --service", err)
	}
	return service, err
}

// checked is what is printed of one server.
type checked struct {
	Service conformance.Service `json:"service"`
	URL     string              `json:"url"`
	Report  *conformance.Report `json:"report"`
}

func checkOne(c *cli.Context, r *conformance.Runner, groups []*conformance.Group, service conformance.Service, address string) error {
	report, failed := r.Run(c.Context, groups)
	err := output.One(c, checked{service, address, report}, func(w io.Writer) { showReport(w, service, report) })
	if failed != nil || err != nil {
		return firstOf(c.Context, failed, err)
	}
	if n := report.Counts()[conformance.Differs]; n > 0 {
		return cli.Exit(fmt.Sprintf("%d calls are answered otherwise than documented", n), exitDifferent)
	}
	return nil
}

// firstOf is why the command ended: its time, an interrupt, or the first error.
func firstOf(ctx context.Context, errs ...error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// showReport prints what is not as documented. The texts of the server are printable.
func showReport(w io.Writer, service conformance.Service, report *conformance.Report) {
	for i := range report.Results {
		r := &report.Results[i]
		if r.Outcome == conformance.Holds || r.Outcome == conformance.Skipped {
			continue
		}
		output.Printf(w, "%s  %s  %s\n", strings.ToUpper(string(r.Outcome)), r.ID, r.Call)
		output.Printf(w, "    documented: %s (%s)\n", r.Shows, r.Source)
		if r.Outcome == conformance.Departs {
			output.Printf(w, "    docs/triton.md, section 5: %s\n", r.Departure)
		}
		for _, d := range r.Differences {
			output.Printf(w, "    %s\n", d)
		}
	}
	counts := report.Counts()
	var parts []string
	for _, o := range conformance.Outcomes {
		if counts[o] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[o], o))
		}
	}
	output.Printf(w, "%s: %d calls: %s\n", service, len(report.Results), strings.Join(parts, ", "))
}

// compared is what is printed of two servers.
type compared struct {
	Service conformance.Service `json:"service"`
	A       string              `json:"url_a"`
	B       string              `json:"url_b"`
	*conformance.Comparison
}

func compareTwo(c *cli.Context, a, b *conformance.Runner, groups []*conformance.Group, service conformance.Service, address, against string) error {
	found, failed := conformance.Compare(c.Context, a, b, groups)
	err := output.One(c, compared{service, address, against, found}, func(w io.Writer) { showComparison(w, service, address, against, found) })
	if failed != nil || err != nil {
		return firstOf(c.Context, failed, err)
	}
	if !found.Same() {
		return cli.Exit(fmt.Sprintf("%d differences", len(found.Differences)+found.More), exitDifferent)
	}
	return nil
}

func showComparison(w io.Writer, service conformance.Service, address, against string, found *conformance.Comparison) {
	if !found.Same() {
		output.Printf(w, "A is %s\nB is %s\n", address, against)
	}
	for _, d := range found.Differences {
		output.Printf(w, "%s\n    A %s\n    B %s\n", strings.Join(present(d.Where, d.Key, d.Field), "  "), d.A, d.B)
	}
	if found.More > 0 {
		output.Printf(w, "and %d differences more\n", found.More)
	}
	for _, path := range slices.Sorted(maps.Keys(found.Objects)) {
		output.Printf(w, "%s %s: both have %d objects%s\n", service, path, found.Objects[path], notCompared(found.Except[path]))
	}
	output.Printf(w, "%s: %d calls, %d differences\n", service, found.Calls, len(found.Differences)+found.More)
}

func notCompared(fields []string) string {
	if len(fields) == 0 {
		return ""
	}
	return " (not compared: " + strings.Join(fields, ", ") + ")"
}

// present are the texts that are not empty.
func present(texts ...string) []string {
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" })
}
