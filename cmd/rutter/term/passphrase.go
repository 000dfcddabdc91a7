package term

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
)

// PassphraseVariable has the passphrase itself, for those who keep secrets in the
// environment. No flag has: others of the machine see a command line.
const PassphraseVariable = "RUTTER_PASSPHRASE"

// maxPassphrase bounds what is read of a passphrase, in bytes.
const maxPassphrase = 4 << 10

// PassphraseFlag names the file with the passphrase of the authorities' keys.
func PassphraseFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "passphrase-file", EnvVars: []string{"RUTTER_PASSPHRASE_FILE"},
		Usage: "`FILE` with the passphrase of the authorities' keys in its first line, - for the standard input; or " + PassphraseVariable + " has it",
	}
}

// Passphrase reads what PassphraseFlag names, or else PassphraseVariable, which
// no program that this one starts gets to see: "" if there is neither.
func Passphrase(c *cli.Context) (string, error) {
	secret, where := os.Getenv(PassphraseVariable), PassphraseVariable
	if err := os.Unsetenv(PassphraseVariable); err != nil {
		return "", err
	}
	path := c.String("passphrase-file")
	if path == "" && secret == "" {
		return "", nil
	}
	if path != "" {
		var err error
		if secret, err = readPassphrase(c.Context, path); err != nil {
			return "", err
		}
		where = "--passphrase-file " + path
	}
	line, _, _ := strings.Cut(secret, "\n")
	if line = strings.TrimRight(line, "\r"); line == "" {
		return "", Usagef("%s: its first line is empty", where)
	}
	return line, nil
}

func readPassphrase(ctx context.Context, path string) (string, error) {
	in, err := Input(ctx, path)
	if err != nil {
		return "", Usagef("--passphrase-file: %w", err)
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxPassphrase+1))
	if err != nil {
		return "", fmt.Errorf("--passphrase-file: %w", err)
	}
	if len(text) > maxPassphrase {
		return "", Usagef("--passphrase-file %s: more than %d bytes: is it a passphrase?", path, maxPassphrase)
	}
	return string(text), nil
}
