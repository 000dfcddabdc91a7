package certcmd

import (
	"errors"
	"fmt"
	"io"
	"os"
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
		) + "\n\nOther users of a machine see command lines (ps), so no flag takes the token itself: name a file, the standard\ninput (-), or set " + tokenVariable + ". If an answer was lost, ask again with the same token.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "token-file", Usage: "`FILE` with the token that rutter token create printed, - for the standard input; or " + tokenVariable + " has it"},
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

// tokenVariable has the token itself. No flag does: see RefuseTokens.
const tokenVariable = "RUTTER_TOKEN"

// RefuseTokens refuses a command line that has a token in it, of any command. Other users
// of the machine have seen it then, so that it must not be used.
func RefuseTokens(args []string) error {
	for _, arg := range args {
		_, value, _ := strings.Cut(arg, "=")
		for _, text := range []string{arg, value} {
			if token, err := pki.ParseToken(text); err == nil {
				return term.Usagef("the command line has a token, and other users of this machine can see it (ps): make it useless (rutter token revoke %s), make another, and give that one by --token-file FILE, by --token-file - on the standard input, or in %s", token.ID, tokenVariable)
			}
		}
	}
	return nil
}

// tokenOf reads the token, and hides it from programs that this one starts.
func tokenOf(c *cli.Context) (pki.Token, error) {
	text := os.Getenv(tokenVariable)
	if err := os.Unsetenv(tokenVariable); err != nil {
		return pki.Token{}, err
	}
	if text == "" && c.String("token-file") == "" {
		return pki.Token{}, term.Usagef("the token is missing: --token-file FILE, --token-file - for the standard input, or %s", tokenVariable)
	}
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
