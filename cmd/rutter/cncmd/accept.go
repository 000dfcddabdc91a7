package cncmd

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/named"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// cnAcceptCommand lets compute nodes execute the removals that they hold.
func cnAcceptCommand() *cli.Command {
	return &cli.Command{
		Name: "accept", Usage: "let compute nodes take away what the log lacks", ArgsUsage: "UUID...", Action: cnAccept,
		Flags: []cli.Flag{
			term.ServersFlag(), output.Flag(),
			&cli.BoolFlag{Name: "all", Usage: "all that hold something back now"},
			&cli.StringFlag{Name: "hold", Usage: "only the hold of this `ID`, as rutter cn sessions shows it"},
		},
		Description: term.Examples("rutter cn sessions", "rutter cn accept 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01", "rutter cn accept --all") +
			"\n\nA node holds back a view of the log that would take away more than a tenth of its links (rutter agent\n--hold-removals), and more than ten, at once: of another cluster, or after it lost its cache. What works there goes\n" +
			"on meanwhile. Accepting is for what it holds now, and for no later one.",
	}
}

// acceptance is the result for one node.
type acceptance struct {
	CN    log.UUID    `json:"cn_uuid"`
	Hold  client.Hold `json:"hold"`
	Error string      `json:"error,omitempty"`
}

func cnAccept(c *cli.Context) error {
	var asked []log.UUID
	for _, text := range c.Args().Slice() {
		cn, err := named.UUID(c, log.KindServer, text)
		if err != nil {
			return err
		}
		asked = append(asked, cn)
	}
	if (len(asked) == 0) != c.Bool("all") {
		return term.Usagef("want the UUIDs of compute nodes, or --all")
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	sessions, err := allSessions(c)
	if err != nil {
		return err
	}
	done := []acceptance{}
	var failed error
	for i := range sessions {
		s := &sessions[i]
		if s.Hold == nil || s.Gone || !c.Bool("all") && !slices.Contains(asked, s.CN) {
			continue
		}
		asked = slices.DeleteFunc(asked, func(cn log.UUID) bool { return cn == s.CN })
		a := acceptance{CN: s.CN, Hold: *s.Hold}
		if id := c.String("hold"); id != "" && id != a.Hold.ID {
			err = fmt.Errorf("it holds %s now", a.Hold.ID)
		} else if a.Hold.ID == "" {
			err = errors.New("its server did not tell what it holds: try again")
		} else {
			_, err = api.AcceptHold(c.Context, s.CN, a.Hold.ID)
		}
		if err != nil {
			a.Error = err.Error()
			failed = errors.Join(failed, fmt.Errorf("CN %s: %w", s.CN, err))
		}
		done = append(done, a)
	}
	for _, cn := range asked {
		failed = errors.Join(failed, fmt.Errorf("CN %s holds nothing back, or is not connected", cn))
	}
	return errors.Join(output.One(c, done, func(out io.Writer) { printAccepted(out, done) }), failed)
}

func printAccepted(out io.Writer, done []acceptance) {
	for _, a := range done {
		if a.Error == "" {
			output.Printf(out, "CN %s takes away %d of %d links (hold %s)\n", a.CN, a.Hold.Going, a.Hold.Links, a.Hold.ID)
		}
	}
	if len(done) == 0 {
		output.Print(out, "no compute node that is connected holds anything back\n")
	}
}

// holdCell is a hold in a column.
func holdCell(h *client.Hold) string {
	switch {
	case h == nil:
		return "-"
	case h.ID == "":
		return "yes"
	}
	return fmt.Sprintf("%d/%d", h.Going, h.Links)
}

// printHolds prints the removals that the CNs of sessions hold, and what else is wrong
// on them.
func printHolds(out io.Writer, sessions []client.Session) {
	w := output.Aligned(out)
	for i := range sessions {
		s := &sessions[i]
		if h := s.Hold; h != nil {
			was := "the kernel as it was found"
			if !h.Was.Cluster.IsZero() {
				was = "cluster " + h.Was.Cluster.String()
			}
			output.Printf(w, "\nCN %s holds back what cluster %s says, which takes away %d of %d links; it goes on as of %s.\nrutter cn accept %s lets it (hold %s). It would lose, among others:\n", s.CN, h.Log, h.Going, h.Links, was, s.CN, output.Text(h.ID))
			for _, name := range h.Names[:min(len(h.Names), namesOfHold)] {
				output.Printf(w, "  %s\n", name)
			}
		}
		if s.Trouble != "" {
			output.Printf(w, "\nCN %s: %s\n", s.CN, s.Trouble)
		}
	}
	_ = w.Flush() // the terminal is gone
}

// namesOfHold bounds the links that a list of sessions names for each hold.
const namesOfHold = 8
