package term

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
)

// PassphraseVariable has the passphrase itself. No flag does, because other users of
// the machine can see a command line.
const PassphraseVariable = "RUTTER_PASSPHRASE"

// maxPassphrase bounds the bytes that are read of a passphrase.
const maxPassphrase = 4 << 10

// PassphraseFlag names the file with the passphrase of the authorities' keys.
func PassphraseFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "passphrase-file", EnvVars: []string{"RUTTER_PASSPHRASE_FILE"},
		Usage: "`FILE` with the passphrase of the authorities' keys in its first line, - for the standard input; or " + PassphraseVariable + " has it",
	}
}

// Passphrase reads the file that PassphraseFlag names, else PassphraseVariable, which
// it hides from programs that this one starts. It is "" if neither is set.
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
