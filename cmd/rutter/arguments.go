package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
	"rutter/log"
)

func fileFlag() cli.Flag {
	return &cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "JSON `FILE` with the fields, - for standard input"}
}

// maxInput bounds a JSON file of fields: what a server would take.
const maxInput = log.MaxChangeBytes

func readInput(ctx context.Context, name string) ([]byte, error) {
	in, err := term.Input(ctx, name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxInput {
		return nil, fmt.Errorf("%s: more than %d bytes", name, maxInput)
	}
	return b, nil
}

// oneFile returns the one argument, the name of a file.
func oneFile(c *cli.Context) (string, error) {
	if c.NArg() != 1 || c.Args().First() == "" {
		return "", term.Usagef("want one argument, %s", c.Command.ArgsUsage)
	}
	return c.Args().First(), nil
}

const exampleVM = "5595d88c-6e4d-4bda-b58e-97dd02e30001"
