package clustercmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// Command shows and changes the servers.
func Command() *cli.Command {
	flags := []cli.Flag{term.ServersFlag(), output.Flag()}
	return &cli.Command{
		Name: "cluster", Usage: "the servers that agree on the log", Category: "Operating",
		Description: term.Examples(
			"rutter cluster status -s http://10.0.0.1:7420     # asks all servers, which it finds by this one",
			"rutter cluster join s4 10.0.0.4:7421     # then: rutter cluster promote s4",
			"rutter cluster remove s2                 # by its ID, the host of its peer port, or its URL",
			"rutter cluster transfer s1",
			"rutter cluster recover --data /var/lib/rutter --id s1     # offline, when the majority is lost",
		),
		Subcommands: append([]*cli.Command{
			statusCommand(),
			{
				Name: "members", Usage: "who belongs to the cluster, who has a vote, who leads", Flags: []cli.Flag{term.ServersFlag(), output.TableFlag()}, Action: clusterMembers,
				Description: term.Examples("rutter cluster members", "rutter cluster members -o json"),
			},
			{
				Name: "join", Usage: "let a running server with an empty folder in, without a vote at first", ArgsUsage: "ID ADDRESS", Action: clusterJoin,
				Flags:       append(slices.Clone(flags), &cli.BoolFlag{Name: "voter", Usage: "give it a vote as soon as it has caught up"}, waitFlag()),
				Description: term.Examples("rutter cluster join s4 10.0.0.4:7421", "rutter cluster join s4 10.0.0.4:7421 --voter"),
			},
			{
				Name: "promote", Usage: "give a server a vote that follows without one, once it has caught up", ArgsUsage: "ID", Action: clusterPromote,
				Flags: append(slices.Clone(flags), waitFlag()), Description: term.Examples("rutter cluster promote s4", "rutter cluster promote s4 --wait 10m"),
			},
			{
				Name: "remove", Usage: "take a server out of the cluster for good, dead or alive", ArgsUsage: "ID", Flags: flags, Action: clusterRemove,
				Description: term.Examples("rutter cluster remove s2", "rutter cluster remove 10.0.0.2", "rutter cluster remove http://10.0.0.2:7420"),
			},
			{
				Name: "transfer", Usage: "hand leadership over, to the server named or the best one", ArgsUsage: "[ID]", Flags: flags, Action: clusterTransfer,
				Description: term.Examples("rutter cluster transfer", "rutter cluster transfer s3"),
			},
			{
				Name: "rebuild", Usage: "make a server that differs from the others replace its state by theirs", ArgsUsage: "ID", Flags: flags, Action: clusterRebuild,
				Description: term.Examples("rutter cluster rebuild s2     # then: rutter cluster status --wait 10m"),
			},
			overviewCommand(),
			timeCommand(),
			retentionCommand(),
			recoverCommand(),
			skipCommand(),
		}, featureCommands()...),
	}
}

func waitFlag() cli.Flag {
	return &cli.DurationFlag{Name: "wait", Value: 5 * time.Minute, Usage: "give up after this `TIME`"}
}

// attemptTimeout bounds one attempt at a change of the cluster. The server itself waits
// 10 s.
const attemptTimeout = 15 * time.Second

func clusterClient(c *cli.Context) (*client.Client, error) {
	cfg, err := term.ClientConfig(c)
	cfg.AttemptTimeout = attemptTimeout
	return term.OpenClient(cfg, err)
}

func clusterMembers(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	status, err := api.Status(c.Context)
	if err != nil {
		return err
	}
	return printMembers(c, status.Members)
}

func printMembers(c *cli.Context, members []client.Member) error {
	return output.Table(c, members, func(w io.Writer) {
		output.Print(w, "ID\tPEER ADDRESS\tVOTE\tLEADER\n")
		for _, m := range members {
			output.Printf(w, "%s\t%s\t%s\t%s\n", m.ID, m.Address, output.YesNo(m.Voter), output.YesNo(m.Leader))
		}
	})
}

// changeCluster posts a change, and prints the members afterwards.
func changeCluster(c *cli.Context, method, path string, body any) error {
	members, err := postCluster(c, method, path, body)
	if err != nil {
		return err
	}
	return printMembers(c, members)
}

func postCluster(c *cli.Context, method, path string, body any) ([]client.Member, error) {
	api, err := clusterClient(c)
	if err != nil {
		return nil, err
	}
	var encoded []byte
	if body != nil {
		if encoded, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	raw, err := api.Raw(c.Context, method, path, encoded)
	if err != nil {
		return nil, err
	}
	var status client.Status
	if err := json.Unmarshal(raw, &status); err != nil {
		return nil, fmt.Errorf("the answer of the server: %w", err)
	}
	return status.Members, nil
}

// oneID returns the id of the server that the one argument names.
func oneID(c *cli.Context) (string, error) {
	if c.NArg() != 1 || c.Args().First() == "" {
		return "", term.Usagef("want one argument, the ID of a server: rutter cluster members lists them")
	}
	return memberID(c, c.Args().First())
}

// memberID returns the id of the member that text names: by its id, by the HOST:PORT or the
// host of its peer port, or by the URL of its API. A text that names none is returned as it
// is: it may be the id of a server that is no member.
func memberID(c *cli.Context, text string) (string, error) {
	api, err := clusterClient(c)
	if err != nil {
		return "", err
	}
	defer api.Close()
	if strings.Contains(text, "://") {
		status, err := api.StatusOf(c.Context, text)
		if err != nil {
			return "", fmt.Errorf("which server is %s? Give its ID, if it does not answer: rutter cluster members: %w", text, err)
		}
		return status.ID, nil
	}
	status, err := api.Status(c.Context)
	if err != nil {
		return "", err
	}
	return memberNamed(status.Members, text)
}

// memberNamed is memberID among members, of all but URLs.
func memberNamed(members []client.Member, text string) (string, error) {
	var at []string
	if slices.ContainsFunc(members, func(m client.Member) bool { return m.ID == text }) {
		return text, nil
	}
	for _, m := range members {
		host, _, err := net.SplitHostPort(m.Address)
		if m.Address == text || err == nil && host == strings.Trim(text, "[]") {
			at = append(at, m.ID)
		}
	}
	switch len(at) {
	case 0:
		return text, nil
	case 1:
		return at[0], nil
	}
	return "", term.Usagef("%s is the host of several servers: give the ID of one of %s", output.Visible(text), strings.Join(at, ", "))
}

type newMember struct {
	ID       string `json:"id"`
	Address  string `json:"address"`
	NonVoter bool   `json:"non_voter"`
}

func clusterJoin(c *cli.Context) error {
	if c.NArg() != 2 {
		return term.Usagef("want two arguments, the new server's ID and the HOST:PORT of its peer port, as in: rutter cluster join s4 10.0.0.4:7421")
	}
	id, address := c.Args().Get(0), c.Args().Get(1)
	if host, _, err := net.SplitHostPort(address); err != nil || host == "" {
		return term.Usagef("%q: want the HOST:PORT of the new server's peer port, as in 10.0.0.4:7421", address)
	}
	members, err := postCluster(c, http.MethodPost, "/cluster/members", newMember{id, address, true})
	if err != nil {
		return err
	}
	if c.Bool("voter") {
		return promote(c, id)
	}
	output.Printf(c.App.ErrWriter, "%s follows without a vote; give it one with: rutter cluster promote %s\n", id, id)
	return printMembers(c, members)
}

func clusterPromote(c *cli.Context) error {
	id, err := oneID(c)
	if err != nil {
		return err
	}
	return promote(c, id)
}

// promotePause is the time between two tries to promote.
const promotePause = 500 * time.Millisecond

// promote repeats the request until the server has caught up.
func promote(c *cli.Context, id string) error {
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("wait"))
	defer cancel()
	for told := false; ; told = true {
		err := changeCluster(c, http.MethodPost, "/cluster/members/"+url.PathEscape(id)+"/promote", nil)
		var refused *log.Refusal
		if err == nil || !errors.As(err, &refused) || !strings.Contains(refused.Message, "not caught up") {
			return err
		}
		if !told {
			output.Printf(c.App.ErrWriter, "waiting for %s to catch up\n", id)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s had no vote after %v: %w", id, c.Duration("wait"), err)
		case <-time.After(promotePause):
		}
	}
}

func clusterRemove(c *cli.Context) error {
	id, err := oneID(c)
	if err != nil {
		return err
	}
	api, err := clusterClient(c)
	if err != nil {
		return err
	}
	status, err := api.Status(c.Context)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(status.Members, func(m client.Member) bool { return m.ID == id }) {
		output.Printf(c.App.ErrWriter, "%s is no member of the cluster: nothing to remove\n", id)
	}
	return changeCluster(c, http.MethodDelete, "/cluster/members/"+url.PathEscape(id), nil)
}

func clusterRebuild(c *cli.Context) error {
	id, err := oneID(c)
	if err != nil {
		return err
	}
	if _, err := postCluster(c, http.MethodPost, "/cluster/members/"+url.PathEscape(id)+"/rebuild", nil); err != nil {
		return err
	}
	output.Printf(c.App.Writer, "%s has begun to rebuild its state; rutter cluster status --wait 10m waits for it\n", id)
	return nil
}

func clusterTransfer(c *cli.Context) error {
	if c.NArg() > 1 {
		return term.Usagef("want at most one argument, the ID of the server that is to lead")
	}
	id := c.Args().First()
	if id != "" {
		var err error
		if id, err = memberID(c, id); err != nil {
			return err
		}
	}
	if _, err := postCluster(c, http.MethodPost, "/cluster/transfer", map[string]string{"id": id}); err != nil {
		return err
	}
	output.Print(c.App.Writer, "leadership was handed over\n")
	return nil
}
