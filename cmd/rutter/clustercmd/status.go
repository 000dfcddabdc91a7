package clustercmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// Exit codes of `rutter cluster status` beside those of every command.
const (
	exitSeeTo   = 1
	exitMissing = 3
)

func statusCommand() *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "what each server of the cluster says of itself, and what is to be seen to", Action: clusterStatus,
		Flags: []cli.Flag{
			term.ServersFlag(), output.TableFlag(),
			&cli.DurationFlag{Name: "wait", Usage: "wait until each of them is ready, this `TIME` at most"},
			&cli.BoolFlag{Name: "only", Usage: "ask only the servers that --server names, and not the others of their cluster"},
		},
		Description: term.Examples(
			"rutter cluster status",
			"rutter cluster status --wait 2m     # between two restarts",
			"rutter cluster status -s http://10.0.0.4:7420 --only --wait 2m",
			"rutter cluster status -o json",
		) + "\n\nThe first server that answers says where the APIs of the others are; each is asked itself.\n\n" +
			"Exit codes: 0 every server answered, and nothing is to be seen to; 1 there is something: a\n" +
			"server is not ready, an alarm or a warning stands, no server leads; 3 a server of the cluster did\n" +
			"not answer; 4 no server answered. With --wait: 0 as soon as each is ready, 1 if one is not in time.",
	}
}

// serverAnswer is the answer of one server, or its error.
type serverAnswer struct {
	URL string `json:"url"`
	client.Status
	Error string `json:"error,omitempty"`
}

func clusterStatus(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	within := statusWithin
	if timeout := c.Duration("timeout"); timeout > 0 {
		within = min(within, timeout*3/4)
	}
	s := survey{api: api, only: c.Bool("only"), within: within}
	answers := s.ask(c.Context)
	for end := time.Now().Add(c.Duration("wait")); !allReady(answers) && time.Now().Before(end); answers = s.ask(c.Context) {
		select {
		case <-c.Context.Done():
			return c.Context.Err()
		case <-time.After(promotePause):
		}
	}
	if c.String("output") == "csv" {
		err = output.Table(c, answers, func(w io.Writer) { writeServers(w, answers) })
	} else {
		err = output.One(c, answers, func(out io.Writer) { writeClusterStatus(out, answers) })
	}
	switch {
	case err != nil:
		return err
	case !slices.ContainsFunc(answers, serverAnswer.answered):
		return client.ErrUnavailable
	case c.IsSet("wait") && !allReady(answers):
		return fmt.Errorf("not every server was ready within %v", c.Duration("wait"))
	case c.IsSet("wait"):
		return nil
	case slices.ContainsFunc(answers, func(a serverAnswer) bool { return !a.answered() }):
		return cli.Exit("", exitMissing) // the table names it
	case len(toSeeTo(answers)) > 0:
		return cli.Exit("", exitSeeTo)
	}
	return nil
}

func (a serverAnswer) answered() bool { return a.Error == "" }

func allReady(answers []serverAnswer) bool {
	return !slices.ContainsFunc(answers, func(a serverAnswer) bool { return !a.answered() || !a.Ready })
}

// statusWithin bounds one server's answer about itself.
const statusWithin = 5 * time.Second

// survey asks the servers of a cluster.
type survey struct {
	api    *client.Client
	only   bool // the servers that were named, and no others
	within time.Duration
}

// ask asks the named servers at once. The first that answers says which other servers
// there are, and they are asked while slow ones are still waited for.
func (s *survey) ask(ctx context.Context) []serverAnswer {
	named := s.api.Servers()
	came := make(chan serverAnswer, len(named))
	for _, server := range named {
		go func() { came <- s.one(ctx, server) }()
	}
	answers := make(map[string]serverAnswer)
	var others chan []serverAnswer
	for range named {
		a := <-came
		answers[a.URL] = a
		if a.answered() && others == nil && !s.only {
			others = make(chan []serverAnswer, 1)
			go func() { others <- s.others(ctx, a, named) }()
		}
	}
	var all []serverAnswer
	for _, server := range named {
		all = append(all, answers[server])
	}
	if others != nil {
		all = merge(all, <-others)
	}
	return all
}

func (s *survey) one(ctx context.Context, server string) serverAnswer {
	ctx, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	status, err := s.api.StatusOf(ctx, server)
	a := serverAnswer{URL: server, Status: status}
	if err != nil {
		a.Error = output.Visible(err.Error())
	}
	return a
}

// others asks the servers of the cluster of a server that are not among those named.
// An answer without a URL's own error names the member.
func (s *survey) others(ctx context.Context, from serverAnswer, named []string) []serverAnswer {
	ctx, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	places, err := s.api.Places(ctx, from.URL)
	if err != nil { // a server of an older program
		for _, m := range from.Members {
			places = append(places, client.Place{ID: m.ID, Peer: m.Address})
		}
	}
	all := make([]serverAnswer, len(places))
	done := make(chan struct{})
	for i, p := range places {
		go func() {
			defer func() { done <- struct{}{} }()
			a := serverAnswer{URL: p.API, Status: client.Status{ID: p.ID}}
			switch {
			case p.ID == from.ID || slices.Contains(named, p.API):
			case p.API == "":
				a.Error = fmt.Sprintf("no server knows where its API is (peer port %s): name it with --server", p.Peer)
			default:
				a = s.one(ctx, p.API)
				if a.answered() && a.ID != p.ID {
					a.Error = fmt.Sprintf("%s answers there: --listen of both names the same address", output.Visible(a.ID))
				}
				a.ID = p.ID
			}
			all[i] = a
		}()
	}
	for range places {
		<-done
	}
	return all
}

// merge adds to the answers of the named servers those of others of their cluster. A server
// that was named by another address than the one that the cluster knows is there once.
func merge(named, others []serverAnswer) []serverAnswer {
	for _, o := range others {
		same := slices.IndexFunc(named, func(a serverAnswer) bool { return a.ID == o.ID && a.ID != "" || a.URL == o.URL && o.URL != "" })
		if same < 0 {
			named = append(named, o)
		} else if named[same].ID == "" {
			named[same].ID = o.ID
		}
	}
	return named
}

// writeClusterStatus is what people read: the servers, and below them what is to be acted on.
func writeClusterStatus(out io.Writer, answers []serverAnswer) {
	w := output.Aligned(out)
	writeServers(w, answers)
	_ = w.Flush() // the terminal is gone
	for _, text := range toSeeTo(answers) {
		output.Printf(out, "%s\n", text)
	}
	for _, text := range featureNotes(answers) {
		output.Printf(out, "note: %s\n", text)
	}
}

// writeServers is a line for each server.
func writeServers(w io.Writer, answers []serverAnswer) {
	var head log.Seq
	for _, a := range answers {
		head = max(head, a.Head.Seq)
	}
	output.Print(w, "SERVER\tID\tSTATE\tZONE\tVERSION\tFEATURE\tHEAD\tLAG\tCLOCK\tDATA\tDISK FREE\tCERTIFICATE ENDS\tUP\tREADY\n")
	for _, a := range answers {
		if a.Error != "" {
			output.Printf(w, "%s\t%s\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t%s\n", cmp.Or(a.URL, "-"), output.Text(cmp.Or(a.ID, "-")), "no answer: "+a.Error)
			continue
		}
		ready, d := "yes", a.Detail
		if a.NotReady != "" {
			ready = "no: " + a.NotReady
		}
		if d.Diverged != "" {
			ready = "no: " + d.Diverged
		}
		output.Printf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s of %s\t%s\t%s\t%s\n", a.URL, output.Text(a.ID), output.Text(stateOf(a)), output.Text(cmp.Or(a.Zone, "-")), output.Text(cmp.Or(a.Version, "-")), featureOf(a),
			a.Head.Seq, head-a.Head.Seq, clockOf(d.Clock), output.Size(d.DBBytes+d.RaftBytes), output.Size(d.DiskFree), output.Size(d.DiskBytes), endOf(a.CertificateEnds), output.Text(a.Uptime), ready)
	}
}

// stateOf is what a server is in the cluster.
func stateOf(a serverAnswer) string {
	if a.Detail.Replica && a.State == "Follower" {
		return "Replica"
	}
	return a.State
}

// featureOf is the feature version that a server works by, and the one that its program
// knows if that is another one.
func featureOf(a serverAnswer) string {
	if a.Known == 0 || a.Known == a.Detail.Feature {
		return fmt.Sprint(a.Detail.Feature)
	}
	return fmt.Sprintf("%d, knows %d", a.Detail.Feature, a.Known)
}

// endOf is the day on which a certificate ends.
func endOf(end time.Time) string {
	if end.IsZero() {
		return "-"
	}
	return end.UTC().Format("2006-01-02 15:04Z")
}

// toSeeTo are the lines about what an operator must act on. What several servers say is
// there once.
func toSeeTo(answers []serverAnswer) (lines []string) {
	add := func(text string) {
		if !slices.Contains(lines, text) {
			lines = append(lines, text)
		}
	}
	leads, answered := false, false
	for _, a := range answers {
		if !a.answered() {
			continue
		}
		answered = true
		leads = leads || a.LeaderID != ""
		if !a.Ready {
			add(fmt.Sprintf("%s is not ready: %s", a.ID, a.NotReady))
		}
		if a.Detail.Clock != nil {
			for _, alarm := range a.Detail.Clock.Alarms {
				add(a.ID + ": " + alarm)
			}
		}
	}
	for _, a := range answers {
		for _, alarm := range a.Alarms {
			add("ALARM " + alarm)
		}
		for _, warning := range a.Warnings {
			if a.Detail.Clock == nil || !slices.Contains(a.Detail.Clock.Alarms, warning) { // these stand above
				add("WARNING " + a.ID + ": " + warning)
			}
		}
	}
	if answered && !leads {
		add("no server leads: nothing can be written")
	}
	return lines
}

// featureNotes say which servers know a newer feature version than the one that all work
// by, and for whom they wait.
func featureNotes(answers []serverAnswer) []string {
	var agreed, newest uint32
	for _, a := range answers {
		agreed, newest = max(agreed, a.Detail.Feature), max(newest, a.Known, a.Detail.Feature)
	}
	if newest == agreed {
		return nil
	}
	var know, behind, unknown []string
	for _, a := range answers {
		switch {
		case !a.answered():
			unknown = append(unknown, cmp.Or(a.ID, a.URL))
		case a.Known >= newest:
			know = append(know, a.ID)
		default:
			behind = append(behind, fmt.Sprintf("%s (%s)", a.ID, cmp.Or(a.Version, "an older program")))
		}
	}
	text := fmt.Sprintf("feature version %d is in effect; %s know %d", agreed, strings.Join(know, " and "), newest)
	switch {
	case len(behind) > 0:
		text += ", which waits for the upgrade of " + strings.Join(behind, " and ")
	case len(unknown) > 0:
		text += ", which waits for the answer of " + strings.Join(unknown, " and ")
	default:
		text += ", which all do: it takes effect when --feature-settle is over"
	}
	return []string{text}
}
