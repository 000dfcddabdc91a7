package term

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/urfave/cli/v2"
)

// passphraseOf is what a command with these arguments reads.
func passphraseOf(args ...string) (secret string, err error) {
	app := &cli.App{Name: "x", Flags: []cli.Flag{PassphraseFlag()}, Action: func(c *cli.Context) error {
		secret, err = Passphrase(c)
		return nil
	}}
	return secret, errors.Join(app.Run(append([]string{"x"}, args...)), err)
}

func TestPassphrase(t *testing.T) {
	dir := t.TempDir()
	path := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, c := range []struct{ name, variable, file, want string }{
		{name: "neither"},
		{name: "a file", file: path("unix", "a b \nrest\n"), want: "a b "},
		{name: "of Windows", file: path("dos", "secret\r\n"), want: "secret"},
		{name: "the variable", variable: "secret", want: "secret"},
		{name: "both", variable: "one", file: path("two", "two"), want: "two"},
	} {
		t.Setenv(PassphraseVariable, c.variable)
		t.Setenv("RUTTER_PASSPHRASE_FILE", c.file)
		if got, err := passphraseOf(); got != c.want || err != nil {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
		if _, there := os.LookupEnv(PassphraseVariable); there {
			t.Errorf("%s: children see the passphrase", c.name)
		}
	}
	for name, file := range map[string]string{
		"nothing in it": path("empty", "\nsecret\n"), "no file": filepath.Join(dir, "none"), "not a passphrase": path("big", string(make([]byte, maxPassphrase+1))),
	} {
		var usage UsageError
		if _, err := passphraseOf("--passphrase-file", file); !errors.As(err, &usage) {
			t.Errorf("%s: %v, want a mistake in usage", name, err)
		}
	}
}

// - is the standard input.
func TestPassphraseFromStandardInput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func(in *os.File) { os.Stdin = in }(os.Stdin)
	os.Stdin = r
	if _, err := w.WriteString("from a pipe\n"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := passphraseOf("--passphrase-file", "-"); got != "from a pipe" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
