package certcmd

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/auth/pki"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/pkiclient"
	"rutter/cmd/rutter/term"
)

// JoinCommand is `rutter agent join`.
func JoinCommand() *cli.Command {
	return &cli.Command{
		Name: "join", Usage: "get this compute node's first certificate, for a token",
		Description: term.Examples(
			"rutter agent join --token-file /run/token --server https://10.0.0.1:7420 --ca-hash sha256:… --tls-dir /etc/rutter/tls",
			"echo TOKEN | rutter agent join --token-file - --server https://10.0.0.1:7420 --ca-hash sha256:… --tls-dir /etc/rutter/tls",
		) + "\n\nWhat stands on a command line can be seen by others of this machine: prefer --token-file or RUTTER_TOKEN.\nAn answer that was lost is no loss: ask again with the same token.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "token", EnvVars: []string{"RUTTER_TOKEN"}, Usage: "`TOKEN` that rutter token create printed"},
			&cli.StringFlag{Name: "token-file", Usage: "`FILE` with the token, - for the standard input"},
			&cli.StringSliceFlag{Name: "server", EnvVars: []string{"RUTTER_SERVERS"}, Required: true, Usage: "base `URL` of a server, as in https://10.0.0.1:7420; may be given several times"},
			&cli.StringFlag{Name: "ca-hash", Required: true, Usage: "`HASH` of the authority, as rutter token create printed it"},
			&cli.StringFlag{Name: "tls-dir", EnvVars: []string{"RUTTER_TLS_DIR"}, Required: true, Usage: "`FOLDER` that is filled, for rutter agent --tls-dir"},
		},
		Action: func(c *cli.Context) error {
			if err := term.NoArguments(c); err != nil {
				return err
			}
			token, err := tokenOf(c)
			if err != nil {
				return err
			}
			var failures error
			for _, server := range c.StringSlice("server") {
				leaf, err := pkiclient.Join(c.Context, strings.TrimSuffix(server, "/"), token, c.String("ca-hash"), c.String("tls-dir"))
				if err == nil {
					output.Printf(c.App.Writer, "%s has a certificate until %s, in %s\n", leaf.Subject.CommonName, leaf.NotAfter.UTC().Format(time.RFC3339), c.String("tls-dir"))
					return nil
				}
				failures = errors.Join(failures, fmt.Errorf("%s: %w", server, err))
			}
			return failures
		},
	}
}

func tokenOf(c *cli.Context) (pki.Token, error) {
	text := c.String("token")
	if path := c.String("token-file"); path != "" {
		in, err := term.Input(c.Context, path)
		if err != nil {
			return pki.Token{}, term.Usagef("--token-file: %w", err)
		}
		defer in.Close()
		b, err := io.ReadAll(io.LimitReader(in, 1<<10))
		if err != nil {
			return pki.Token{}, fmt.Errorf("--token-file: %w", err)
		}
		text = string(b)
	}
	token, err := pki.ParseToken(text)
	if err != nil {
		return token, term.UsageError{Err: err}
	}
	return token, nil
}
