package term

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"rutter/log"
)

// FileFlag names a file of fields for a command that takes FIELD=VALUE as well.
func FileFlag() cli.Flag {
	return &cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "JSON `FILE` with the fields, - for standard input"}
}

// MaxInput bounds a JSON file of fields, in bytes: a server accepts no more.
const MaxInput = log.MaxChangeBytes

// ReadInput reads a whole file that the user named, or standard input for "-".
// Errors: ctx's, and one for more than MaxInput bytes.
func ReadInput(ctx context.Context, name string) ([]byte, error) {
	in, err := Input(ctx, name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, MaxInput+1))
	if err != nil {
		return nil, err
	}
	if len(b) > MaxInput {
		return nil, fmt.Errorf("%s: more than %d bytes", name, MaxInput)
	}
	return b, nil
}

// OneFile returns the one argument, the name of a file.
func OneFile(c *cli.Context) (string, error) {
	if c.NArg() != 1 || c.Args().First() == "" {
		return "", Usagef("want one argument, %s", c.Command.ArgsUsage)
	}
	return c.Args().First(), nil
}

// ExampleVM is the VM in examples.
const ExampleVM = "5595d88c-6e4d-4bda-b58e-97dd02e30001"
